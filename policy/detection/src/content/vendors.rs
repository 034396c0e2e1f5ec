//! Names of services that issue API keys: a word that looks random and follows one of them is taken for a key.

use aho_corasick::AhoCorasick;
use policy_core::base::compiled::Compiled;

/// The names in lower case without separators, sorted.
#[rustfmt::skip]
const VENDORS: &[&str] = &[
    "abstractapi", "abuseipdb", "accuweather", "activecampaign", "adafruit", "adobe", "adyen", "airbrake", "airship", "airtable",
    "airvisual", "aiven", "algolia", "alibaba", "alienvault", "amplitude", "anthropic", "apacta", "apiflash", "apify", "appcues",
    "appfollow", "appoptics", "artifactory", "asana", "assemblyai", "atlassian", "auth0", "autodesk", "avaza", "aviationstack",
    "bannerbear", "baremetrics", "beamer", "beebole", "billomat", "bitbucket", "bitfinex", "bitly", "bitmex", "bittrex",
    "blazemeter", "bombbomb", "boostnote", "borgbase", "brandfetch", "browserstack", "bugherd", "bugsnag", "buildkite",
    "bulksms", "buttercms", "calendarific", "calendly", "calorieninja", "campayn", "cannyio", "capsulecrm", "captaindata",
    "cashboard", "censys", "chartmogul", "chatfule", "circleci", "clarifai", "clearbit", "clickhelp", "clickup", "cliengo",
    "clockify", "clockwork", "closecrm", "cloudconvert", "cloudelements", "cloudflare", "cloudimage", "cloudinary",
    "cloudmersive", "cloudsmith", "cloverly", "codacy", "codeclimate", "codecov", "cohere", "coinapi", "coinbase", "coinlayer",
    "coinlib", "commercejs", "confluent", "contentful", "convertkit", "convier", "coveralls", "crowdin", "crowdstrike",
    "cryptocompare", "currencylayer", "currentsapi", "dailyco", "dareboost", "datadog", "datafire", "datagov", "debounce",
    "deepai", "deepgram", "deepl", "deepseek", "delighted", "detectify", "detectlanguage", "dialogflow", "digitalocean",
    "discogs", "discord", "disqus", "docusign", "doppler", "dotmailer", "dovico", "dronahq", "droneci", "dropbox", "duffel",
    "dwolla", "dynalist", "dyspatch", "eagleeye", "easyinsight", "edamam", "etherscan", "ethplorer", "etsy", "eventbrite",
    "everhour", "exchangerate", "faceplusplus", "fastforex", "fastly", "feedier", "figma", "fileio", "finage",
    "financialmodelingprep", "finicity", "finnhub", "fireworks", "fixerio", "flatio", "fleetbase", "flickr", "flightapi",
    "flightstats", "flutterwave", "fmfw", "formbucket", "foursquare", "frameio", "freshbooks", "freshdesk", "fullstory",
    "fxmarket", "gengo", "geoapify", "geocode", "geocodify", "geocodio", "geoipify", "getemail", "getgeoapi", "getgist",
    "getresponse", "getsandbox", "giphy", "gitter", "glassnode", "gocanvas", "gocardless", "goodday", "graphcms", "graphhopper",
    "groovehq", "groq", "gtmetrix", "gumroad", "happyscribe", "heroku", "hiveage", "holidayapi", "hootsuite", "html2pdf",
    "hubspot", "huggingface", "hunter", "hypertrack", "iconfinder", "iexapis", "iexcloud", "imagekit", "imagga", "infura",
    "insightly", "integromat", "intercom", "intrinio", "invoiceocean", "ipapi", "ipdata", "ipgeolocation", "ipify", "ipinfo",
    "ipquality", "ipstack", "jfrog", "jotform", "jumpcloud", "juro", "kafka", "karmacrm", "keenio", "kickbox", "klaviyo",
    "klipfolio", "kraken", "kucoin", "kylas", "languagelayer", "lastfm", "launchdarkly", "leadfeeder", "lendflow",
    "lessannoyingcrm", "lexigram", "linearapi", "linemessaging", "linenotify", "linkedin", "liveagent", "livestorm",
    "locationiq", "loginradius", "lokalise", "loyverse", "lunchmoney", "luno", "madkudu", "mailboxlayer", "mailchimp",
    "mailerlite", "mailgun", "mailjet", "mailmodo", "mailsac", "mandrill", "mapbox", "mapquest", "marketstack", "mattermost",
    "mavenlink", "maxmind", "meaningcloud", "mediastack", "meistertask", "mesibo", "messagebird", "metaapi", "metabase",
    "metrilo", "microsoftteams", "mindmeister", "miro", "mixmax", "mixpanel", "monday", "mongodb", "moonclerk", "moosend",
    "mrticktock", "myexperiment", "myfreshworks", "myintervals", "nasa", "nethunt", "netlify", "neutrinoapi", "newrelic",
    "newsapi", "newscatcher", "nexmo", "nftport", "ngrok", "nicereply", "noticeable", "notion", "nozbe", "numverify",
    "nutritionix", "nylas", "nytimes", "oanda", "okta", "omnisend", "onedesk", "onelogin", "onepagecrm", "onesignal", "onwater",
    "oopspam", "openai", "opencage", "opengraphr", "openrouter", "openuv", "openweather", "opsgenie", "optimizely", "owlbot",
    "packagecloud", "pagerduty", "palantir", "pandadoc", "pandascore", "paperform", "paralleldots", "parseur", "partnerstack",
    "passbase", "pastebin", "paymo", "paymongo", "paypal", "paystack", "pdflayer", "pdfshift", "peopledatalabs", "pepipost",
    "phantombuster", "pinata", "pingdom", "pipedream", "pipedrive", "pivotaltracker", "pixabay", "plaid", "planetscale",
    "planview", "planyo", "plivo", "podio", "pollsapi", "poloniex", "positionstack", "postageapp", "posthog", "postman",
    "postmark", "powrbot", "prefect", "prospectcrm", "prospectio", "protocolsio", "proxycrawl", "pubnub", "pulumi", "pushbullet",
    "pusher", "pushover", "qase", "qualaroo", "quickmetrics", "rapidapi", "rawg", "razorpay", "reallysimplesystems", "recaptcha",
    "reddit", "refiner", "rentman", "repairshopr", "replicate", "requestfinance", "restpack", "restpackhtmltopdfapi",
    "revampcrm", "ringcentral", "ritekit", "rocketreach", "rollbar", "route4me", "rownd", "runrunit", "salesblink",
    "salescookie", "salesflare", "salesforce", "salesmate", "satismeter", "saucelabs", "scaleway", "scrapeowl", "scraperapi",
    "scraperbox", "scrapestack", "scrapingant", "scrapingbee", "screenshotapi", "screenshotlayer", "securitytrails", "selectpdf",
    "semaphore", "sendbird", "sendgrid", "sendinblue", "sentry", "serphouse", "serpstack", "sheety", "sherpadesk", "shipday",
    "shippo", "shodan", "shopify", "shotstack", "shutterstock", "signalwire", "signaturit", "signupgenius", "sigopt", "simfin",
    "simplesat", "simplynoted", "simvoly", "sirv", "siteleaf", "skrapp", "skybiometry", "slack", "smartsheet", "smartystreets",
    "smooch", "snipcart", "snyk", "sonarcloud", "sonarqube", "sourcegraph", "sparkpost", "speechtext", "splunk", "spoonacular",
    "sportsmonk", "spotify", "squarespace", "squareup", "sslmate", "statuscake", "statuspage", "statuspal", "stitchdata",
    "stockdata", "storecove", "stormboard", "stormglass", "storyblok", "storychief", "strava", "stripe", "stripo", "stytch",
    "sugester", "sumologic", "supabase", "supernotes", "surveyanyplace", "surveybot", "surveysparrow", "survicate", "swiftype",
    "tallyfy", "tatumio", "tavily", "taxjar", "teamgate", "teamworkcrm", "teamworkdesk", "teamworkspaces", "technicalanalysis",
    "telegram", "telnyx", "textmagic", "theoddsapi", "thinkific", "thousandeyes", "ticketmaster", "tiingo", "timecamp",
    "timezoneapi", "tineswebhook", "todoist", "toggl", "tomorrowio", "tomtom", "tradier", "transferwise", "travelpayouts",
    "travisci", "trello", "twelvedata", "twilio", "twitch", "twitter", "tyntec", "typeform", "typetalk", "ubidots", "uclassify",
    "unifyid", "unplugg", "unsplash", "upcdatabase", "uplead", "uploadcare", "uptimerobot", "upwave", "urlscan", "userflow",
    "userstack", "vatlayer", "vbout", "vercel", "verimail", "veriphone", "versioneye", "viewneo", "virustotal", "visualcrossing",
    "voicegain", "vouchery", "vpnapi", "vultr", "vyte", "wakatime", "walkscore", "wandb", "weatherbit", "weatherstack", "webex",
    "webflow", "webscraper", "webscraping", "wepay", "whoxy", "wistia", "worksnaps", "workstack", "worldcoinindex",
    "worldweather", "wrike", "wunderground", "yandex", "yelp", "youneedabudget", "yousign", "zapier", "zendesk", "zenkit",
    "zenrows", "zenscrape", "zenserp", "zeplin", "zerobounce", "zerotier", "zipapi", "zipbooks", "zipcodeapi", "zonkafeedback",
    "zulip",
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
