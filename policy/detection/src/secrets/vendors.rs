//! Names of services that issue API keys: a word that looks random and follows one of them is taken for a key.

use aho_corasick::AhoCorasick;
use policy_core::base::compiled::Compiled;

/// The names in lower case without separators, sorted.
#[rustfmt::skip]
const VENDORS: &[&str] = &[
    "ably", "abstractapi", "abuseipdb", "abyssale", "accuweather", "activecampaign", "adafruit", "adobe", "adyen", "adzuna",
    "aeroworkflow", "airbrake", "airship", "airtable", "airtableoauth", "airvisual", "aiven", "alconost", "alegra",
    "alephalpha", "aletheia", "algolia", "alibaba", "alienvault", "allsports", "amadeus", "ambee", "amplitude", "anthropic",
    "anypoint", "apacta", "apideck", "apiflash", "apify", "apilayer", "apimatic", "apimetrics", "apitemplate", "apollo",
    "appcues", "appfollow", "appointedd", "appoptics", "appsynergy", "artifactory", "artsy", "asaas", "asana", "ashby",
    "assemblyai", "assertible", "atera", "atlassian", "audd", "auth0", "autodesk", "autoklose", "autopilot", "avalara", "avaza",
    "aviationstack", "aweber", "axonaut", "aylien", "ayrshare", "bamboohr", "bannerbear", "baremetrics", "baseapi", "baseten",
    "beamer", "beebole", "besnappy", "besttime", "betterstack", "billomat", "bitbar", "bitbucket", "bitcoinaverage", "bitfinex",
    "bitly", "bitmex", "bittrex", "blazemeter", "blitapp", "bombbomb", "boostnote", "borgbase", "braintree", "brandfetch",
    "brightlocal", "browserless", "browserstack", "browshot", "bscscan", "buddyns", "budibase", "bugherd", "bugsnag",
    "buildkite", "bulbul", "bulksms", "buttercms", "caflou", "calendarific", "calendly", "calorieninja", "campayn", "cannyio",
    "canva", "capsulecrm", "captaindata", "carboninterface", "cashboard", "caspio", "censys", "cexio", "chartmogul", "chatbot",
    "chatfule", "checio", "checklyhq", "checkvist", "cicero", "circleci", "clarifai", "clearbit", "clickatell", "clickhelp",
    "clicksend", "clickup", "cliengo", "clockify", "clockwork", "closecrm", "cloudconvert", "cloudelements", "cloudflare",
    "cloudimage", "cloudinary", "cloudmersive", "cloudplan", "cloudsmith", "cloverly", "clustdoc", "codacy", "codeclimate",
    "codecov", "codemagic", "codequiry", "cohere", "coinapi", "coinbase", "coingecko", "coinlayer", "coinlib", "coinmarketcap",
    "collect2", "commercejs", "companyhub", "confluent", "contentful", "conversiontools", "convertapi", "convertkit", "convier",
    "couchbase", "countrylayer", "coveralls", "craftmypdf", "crossbrowsertesting", "crowdin", "crowdstrike", "cryptocompare",
    "currencycloud", "currencyfreaks", "currencylayer", "currencyscoop", "currentsapi", "customerguru", "customerio",
    "d7network", "dailyco", "dareboost", "dashscope", "databox", "datadog", "datafire", "dataforseo", "datagov", "datastax",
    "debounce", "deepai", "deepcrawl", "deepgram", "deepinfra", "deepl", "deepseek", "delighted", "demio", "detectify",
    "detectlanguage", "dfuse", "dialogflow", "diffbot", "diggernaut", "digitalocean", "digitalriver", "discogs", "discord",
    "disqus", "docparser", "documo", "docusign", "doppler", "dotdigital", "dotmailer", "dovico", "dronahq", "droneci",
    "dropbox", "droplr", "duffel", "dwolla", "dynalist", "dyspatch", "eagleeye", "easyinsight", "easypost", "ecostruxureit",
    "edamam", "edenai", "elasticemail", "elevenlabs", "emailoctopus", "enablex", "endorlabs", "envoyapikey", "etherscan",
    "ethplorer", "etsy", "eventbrite", "everhour", "exchangerate", "exportsdk", "extractorapi", "faceplusplus", "fastforex",
    "fastly", "feedier", "feedly", "fetchrss", "fibery", "figma", "fileio", "filestack", "finage", "financialmodelingprep",
    "finicity", "finnhub", "firecrawl", "fireworks", "fixerio", "flagsmith", "flatio", "fleetbase", "flickr", "flightapi",
    "flightlabs", "flightstats", "flowflu", "flutterwave", "fmfw", "formbucket", "formcraft", "formio", "formsite",
    "foursquare", "frameio", "freshbooks", "freshdesk", "freshservice", "fulcrum", "fullstory", "fxmarket", "gemini",
    "genderapi", "gengo", "geoapify", "geocode", "geocodify", "geocodio", "geoipifi", "geoipify", "getemail", "getgeoapi",
    "getgist", "getresponse", "getsandbox", "giphy", "gitter", "glassnode", "glitterlyapi", "gocanvas", "gocardless", "godaddy",
    "goodday", "graphcms", "graphhopper", "groovehq", "groq", "gtmetrix", "gumroad", "gyazo", "happyscribe", "helicone",
    "helpcrunch", "helpscout", "hereapi", "heroku", "hiveage", "holidayapi", "honeybadger", "honeycomb", "hootsuite",
    "html2pdf", "hubspot", "huggingface", "hunter", "hybiscus", "hypertrack", "iconfinder", "iexapis", "iexcloud", "imagekit",
    "imagga", "infobip", "infura", "insightly", "instabot", "instamojo", "instatus", "integromat", "intercom", "interseller",
    "intrinio", "invoiced", "invoiceocean", "ipapi", "ipdata", "ipgeolocation", "ipify", "ipinfo", "ipinfodb", "ipquality",
    "ipstack", "jenkins", "jfrog", "jina", "jira", "jotform", "jumpcloud", "jumpseller", "juro", "kafka", "kanbantool",
    "karmacrm", "keenio", "kickbox", "klaviyo", "klipfolio", "knapsackpro", "kontent", "koyeb", "kraken", "kucoin", "kylas",
    "langfuse", "langsmith", "languagelayer", "larksuite", "lastfm", "launchdarkly", "leadfeeder", "lemlist", "lemonsqueezy",
    "lendflow", "lessannoyingcrm", "lexigram", "linearapi", "linemessaging", "linenotify", "linkedin", "linode", "liveagent",
    "livechat", "livestorm", "loadmill", "locationiq", "loginradius", "logzio", "lokalise", "loyverse", "lunchmoney", "luno",
    "madkudu", "mailboxlayer", "mailchimp", "mailerlite", "mailersend", "mailgun", "mailjet", "mailjetsms", "mailmodo",
    "mailsac", "mandrill", "mapbox", "mapquest", "marketstack", "mattermost", "mavenlink", "maxmind", "meaningcloud",
    "mediastack", "meistertask", "meraki", "mesibo", "messagebird", "metaapi", "metabase", "metrilo", "microsoftteams",
    "mindmeister", "miro", "mistral", "mixmax", "mixpanel", "mockaroo", "moesif", "monday", "mongodb", "monkeylearn",
    "moonclerk", "moosend", "mrticktock", "myexperiment", "myfreshworks", "myintervals", "nasa", "nebius", "nethunt", "netlify",
    "netsuite", "neutrinoapi", "newrelic", "newsapi", "newscatcher", "nexmo", "nftport", "ngrok", "nicereply", "noticeable",
    "notion", "novita", "nozbe", "nubela", "numverify", "nutritionix", "nvidia", "nylas", "nytimes", "oanda", "okta",
    "omnisend", "onedesk", "onelogin", "onepagecrm", "onesignal", "onfleet", "onwater", "oopspam", "openai", "opencage",
    "opencagedata", "openexchangerates", "opengraphr", "openrouter", "openuv", "openweather", "opsgenie", "optimizely",
    "overloop", "owlbot", "packagecloud", "pagarme", "pagerduty", "palantir", "pandadoc", "pandascore", "paperform",
    "paralleldots", "parsehub", "parseur", "partnerstack", "passbase", "pastebin", "paydirtapp", "paymo", "paymongo", "paypal",
    "paystack", "pdflayer", "pdfshift", "peopledatalabs", "pepipost", "perplexity", "phantombuster", "photoroom", "pinata",
    "pinecone", "pingdom", "pipedream", "pipedrive", "pivotaltracker", "pixabay", "plaid", "planetscale", "planview",
    "planviewleankit", "planyo", "plivo", "podio", "pollsapi", "poloniex", "polygonio", "positionstack", "postageapp",
    "posthog", "postman", "postmark", "powrbot", "prefect", "prodpad", "prospectcrm", "prospectio", "protocolsio", "proxycrawl",
    "pubnub", "pulumi", "pushbullet", "pusher", "pushover", "qase", "qdrant", "qualaroo", "qubole", "quickbase", "quickmetrics",
    "rabbitmq", "rapidapi", "rawg", "razorpay", "reachmail", "readme", "reallysimplesystems", "rebrandly", "recaptcha",
    "rechargepayments", "reddit", "refiner", "removebg", "rentman", "repairshopr", "replicate", "replyio", "requestfinance",
    "restpack", "restpackhtmltopdfapi", "revampcrm", "ringcentral", "ritekit", "rocketreach", "rockset", "rollbar", "rootly",
    "route4me", "rownd", "runrunit", "saladcloud", "salesblink", "salescookie", "salesflare", "salesforce", "salesmate",
    "satismeter", "saucelabs", "scaleway", "scalr", "scrapeowl", "scraperapi", "scraperbox", "scrapersite", "scrapestack",
    "scrapfly", "scrapingant", "scrapingbee", "screenshotapi", "screenshotlayer", "scrutinizer", "securitytrails", "selectpdf",
    "semaphore", "sendbird", "sendbirdorganization", "sendgrid", "sendinblue", "sentry", "serpapi", "serper", "serphouse",
    "serpstack", "sheety", "sherpadesk", "shipday", "shippo", "shodan", "shopify", "shotstack", "shutterstock", "signalwire",
    "signaturit", "signupgenius", "sigopt", "siliconflow", "simfin", "simplesat", "simplynoted", "simvoly", "sinch", "sirv",
    "siteleaf", "skrapp", "skrappio", "skybiometry", "slack", "smartsheet", "smartystreets", "smooch", "snipcart", "snowflake",
    "snyk", "sonarcloud", "sonarqube", "sonatype", "sourcegraph", "sparkpost", "spectralops", "speechtext", "splunk",
    "spoonacular", "sportsmonk", "spotify", "squarespace", "squareup", "sslmate", "stabilityai", "stackhawk", "statuscake",
    "statuspage", "statuspal", "stitchdata", "stockdata", "storecove", "stormboard", "stormglass", "storyblok", "storychief",
    "strava", "stripe", "stripo", "stytch", "sugester", "sumologic", "supabase", "supernotes", "supertokens", "surveyanyplace",
    "surveybot", "surveysparrow", "survicate", "swiftype", "tableau", "tailscale", "tallyfy", "tatumio", "tavily", "taxjar",
    "teamgate", "teamworkcrm", "teamworkdesk", "teamworkspaces", "technicalanalysis", "tefter", "telegram", "telesign",
    "telnyx", "tencent", "textmagic", "theoddsapi", "thinkific", "thousandeyes", "ticketmaster", "tickettailor", "tiingo",
    "timecamp", "timezoneapi", "tineswebhook", "todoist", "togetherai", "toggl", "tokeet", "tomorrowio", "tomtom", "tradier",
    "transferwise", "travelpayouts", "travisci", "trello", "turso", "twelvedata", "twilio", "twitch", "twitter", "tyntec",
    "typeform", "typetalk", "ubidots", "uclassify", "unifyid", "unplugg", "unsplash", "upcdatabase", "uplead", "uploadcare",
    "upstash", "uptimerobot", "upwave", "urlscan", "userflow", "userstack", "uservoice", "vatlayer", "vbout", "vercel",
    "verimail", "veriphone", "versioneye", "viewneo", "virustotal", "visualcrossing", "vitally", "voiceflow", "voicegain",
    "volcengine", "vonage", "voodoosms", "vouchery", "voyageai", "vpnapi", "vultr", "vyte", "wakatime", "walkscore", "wandb",
    "weatherbit", "weatherstack", "weaviate", "webex", "webflow", "webscraper", "webscraping", "websitepulse",
    "weightsandbiases", "wepay", "whoxy", "wistia", "woocommerce", "workos", "worksnaps", "workstack", "worldcoinindex",
    "worldweather", "wrike", "wunderground", "xero", "yandex", "yelp", "yext", "youneedabudget", "yousign", "youtube", "zapier",
    "zendesk", "zenkit", "zenrows", "zenscrape", "zenserp", "zeplin", "zerobounce", "zerotier", "zilliz", "zipapi", "zipbooks",
    "zipcodeapi", "zipcodebase", "zohocrm", "zonkafeedback", "zoom", "zulip", "zuora",
];

static KNOWN: Compiled<AhoCorasick> = Compiled::new(|| Ok(AhoCorasick::new(VENDORS)?));
/// Length of the longest name, in bytes.
const LONGEST: usize = 21;

/// Words that may stand between such a name and the key.
const BETWEEN: [&str; 18] = [
    "apikey",
    "apitoken",
    "accesskey",
    "accesstoken",
    "secretkey",
    "clientsecret",
    "clientid",
    "authtoken",
    "key",
    "token",
    "secret",
    "access",
    "private",
    "public",
    "api",
    "auth",
    "id",
    "client",
];

/// Whether the text before a word ends with the name of a service; `plain` consists of lower-case letters and
/// digits. `Some(true)` if it mentions a key as well.
pub(super) fn names(plain: &str) -> Option<bool> {
    let (mut rest, mut key) = (plain, false);
    while let Some(shorter) = BETWEEN.iter().find_map(|word| rest.strip_suffix(word)) {
        (rest, key) = (shorter, true);
    }
    let of = |rest: &str| {
        let end = rest.get(rest.len().saturating_sub(LONGEST)..).unwrap_or(rest);
        let known = KNOWN.get().into_iter().flat_map(|known| known.find_overlapping_iter(end));
        known.into_iter().any(|name| name.end() == end.len())
    };
    // Some names end in one of these words themselves.
    (of(rest) || of(plain)).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::{KNOWN, LONGEST, VENDORS, names};

    #[test]
    fn the_names_compile() {
        assert!(KNOWN.error().is_none());
    }

    #[test]
    fn the_names_are_as_they_are_compared() {
        assert!(VENDORS.is_sorted());
        for vendor in VENDORS {
            let plain = vendor.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
            assert!(plain && (3..=LONGEST).contains(&vendor.len()), "{vendor}");
        }
    }

    #[test]
    fn a_name_is_known_with_what_stands_behind_it() {
        assert_eq!(names("mymailgunapikey"), Some(true));
        assert_eq!(names("mailgun"), Some(false));
        assert_eq!(names("thekey"), None);
    }
}
