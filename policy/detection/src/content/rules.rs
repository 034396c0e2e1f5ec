//! The patterns for planted instructions in results: mail, pages, files, records. A pattern adds a weight to the score;
//! no pattern decides alone.
//!
//! Each is searched for only around trigger words without which it cannot match; all are linear in the length of the
//! text.

use super::solicit;

/// The notes of two rules whose matches do not count where they are forbidden: warnings use the same words.
pub(super) const CONFIDENTIAL: &str = "has something confidential sent away";
/// The note of the rule for calls that the model is obliged to make.
pub(super) const OBLIGES: &str = "obliges the model to call a tool";
/// The note of the rules for instructions that are to be ignored.
pub(super) const ASIDE: &str = "sets earlier instructions aside";
/// The note of the rule for a call that has to be made first.
pub(super) const CONDITION: &str = "makes a call the condition of another";
/// The notes of the rules for requests, and for pages that are to be opened.
pub(super) const ASKS: &str = "asks for something to be done";
pub(super) const PAGE: &str = "has a page opened";
pub(super) const ADDRESSED: &str = "has something sent to an address";

/// A weighted pattern with its trigger words.
pub(super) struct ContentRule {
    /// Its weight, in hundredths of a score.
    pub(super) weight: u16,
    /// Whether it counts only beside another rule.
    pub(super) weak: bool,
    /// Description of a match, for findings.
    pub(super) note: &'static str,
    /// Trigger words in lower case; without one of them it cannot match.
    pub(super) words: &'static [&'static str],
    /// A regular expression over bytes; empty where it is built from parts ([`solicit::pattern`]).
    pub(super) pattern: &'static str,
}

#[rustfmt::skip]
pub(super) const RULES: [ContentRule; 25] = [
    ContentRule { weight: 120, weak: false, note: ASIDE,
        words: &["ignor", "disregard", "forget", "overrid", "bypass", "neglect", "discard", "do not follow", "do not obey", "stop following", "pay no attention", "set aside"],
        pattern: r#"(?im-u)\b(?:ignor(?:e|ing)|disregard(?:ing)?|forget|overrid(?:e|ing)|bypass|neglect|discard|do not (?:follow|obey)|stop following|pay no attention to|set aside)\b[^.\n]{0,25}?\b(?:(?:previous|prior|above|earlier|original|current|existing|preceding|all|any|your|these|those|the|my|his|her|their)\s+(?:\w+\s+){0,2}?(?:i\w{0,2}nstructions?|prompts?|directives?|commands?|guidelines|tasks?|context)|(?:previous|prior|your|user'?s?|original)\s+(?:messages?|requests?|questions?)|(?:everything|anything|all|what(?:ever)?)\b[^.\n]{0,20}\b(?:above|before|earlier|told|said|previous|prior))\b"# },
    ContentRule { weight: 110, weak: false, note: "poses as a message of the system",
        words: &["system", "[inst", "[/inst", "# inst", "#inst", "# admin", "#admin", "# developer", "#developer", "<|", "<inst", "</inst", "<admin", "<important", "<information", "<secret", "new task", "new prompt", "new instruction"],
        pattern: r#"(?im-u)#{2,}\s*\(?\s*(?:system|inst(?:ruction)?s?|admin|developer)\b[_ ]?(?:message|prompt|override|notice|instructions?)?\b|<\|(?:im_start|system|user|assistant)[^>]{0,12}\|?>|\[/?(?:INST|SYSTEM|SYS)\]|<{1,2}/?(?:SYS|system|system[_-]prompt|instructions?|admin|important|information|secret)>|\bsystem[_ ](?:message|override)\b|\bsystem\s*:\s*(?:you|ignore|the|new|please)\b|\bnew (?:system )?(?:instructions?|prompt|task)\s*:"# },
    ContentRule { weight: 110, weak: false, note: "speaks to the model that reads it",
        words: &[" ai", " model", "assistant", "agent", "llm", "chatbot", "language model", "chatgpt", "claude", "from me"],
        pattern: r#"(?im-u)\b(?:message|instructions?|notes?|attention|notice)\b[^.\n]{0,40}\b(?:to|for) (?:you,?|the|any)? ?(?:ai|assistant|agent|model|llm|chatbot|language model)s?\b[^.\n]{0,3}[:,.!]|\bif you are an? (?:ai|llm|language model|assistant|agent|chatbot)\b|\b(?:dear|hey|hello|hi),? (?:ai|assistant|chatgpt|claude|gpt)\b|\bimportant message from me\b|\bfrom me,? \w+,? to you\b|\bany (?:ai|llm|language model|assistant) (?:that|which|who|reading)"# },
    ContentRule { weight: 100, weak: false, note: "puts a condition before the task of the user",
        words: &["you must", "you need", "you have to", "you should", "you first", "you will", "you also", "please first", "first do", "first call", "first run", "first send", "first read", "first use"],
        pattern: r#"(?im-u)\b(?:before|in order to|to) (?:you )?(?:can )?(?:solve|solving|complet\w+|finish\w*|answer\w*|start\w*|proceed\w*|continu\w+)\b[^.\n]{0,50}\b(?:you (?:first |will |also )*(?:must|need|have to|should)|please first|first (?:do|call|run|send|read|use))\b"# },
    ContentRule { weight: 100, weak: false, note: "demands to be obeyed",
        words: &["you must", "you have to", "you need to", "you should", "you are required", "you will", "strictly"],
        pattern: r#"(?im-u)\byou (?:must|have to|need to|should|are required to|will)\b[\w ,]{0,24}:? ?\b(?:strictly adhere|strictly follow|adhere to|follow the(?:se| following) instruct\w*|include in your|append to your|print the|output the|say the|respond with|reply with|comply|only respond|now follow|obey)\b|\bstrictly (?:follow|adhere|obey)\b[^.\n]{0,30}\binstruct"# },
    ContentRule { weight: 100, weak: false, note: "says what to do instead when asked for something",
        words: &["asked", "told", "instructed", "prompted", "requested", "summari", "translat", "answer", "respond"],
        pattern: r#"(?im-u)\b(?:if|when|whenever|once)\b,? (?:you(?:'re| are)? |being )?(?:asked|told|instructed|prompted|requested|summari[sz](?:e|ing)|translat(?:e|ing)|answer(?:ing)?|respond(?:ing)?)\b[^.\n]{0,70}\b(?:instead|include|print|say|insert|output|respond|reply|write|add|append|state|answer with)\b"# },
    ContentRule { weight: 100, weak: false, note: "says what to put into the answer",
        words: &["your response", "your answer", "your reply", "your output", "your summary", "your message", "your next", "your final", "your entire", "the response", "the answer", "the reply", "the summary", "every response", "every answer", "every reply", "each response", "each answer", "each reply", "respond only", "respond exactly", "respond always", "respond to every", "respond to each"],
        pattern: r#"(?im-u)\b(?:include|insert|append|add|print|output|write|put|repeat|say|mention|place|embed|encode)\b[^.\n]{0,60}\b(?:in(?:to)?|at the (?:end|beginning|start) of|to|with) your (?:response|answer|reply|output|summary|message)\b|\b(?:end|start|begin|finish|conclude) (?:your|the|every|each) (?:response|answer|reply|summary)\b|\brespond (?:only|exactly|always|to every|to each)\b[^.\n]{0,12}(?:with|by|as|in)\b|\b(?:in|with|at the end of|modify|change|alter|translate) your (?:next |final |entire )?(?:response|answer|reply|summary)\b"# },
    ContentRule { weight: 90, weak: false, note: "gives orders under the pretext of a test",
        words: &["test"],
        pattern: r#"(?im-u)\b(?:for|strictly for|part of an?|running as part of a) test(?:ing)?(?: purposes| pipeline| only)?\b[^\n]{0,140}\b(?:include|repeat|print|say|output|response|you must|do the following)\b"# },
    ContentRule { weight: 100, weak: false, note: "has the model be somebody without rules",
        words: &["pretend", "you are now", "from now on", "act as", "imagine you", "content polic", "ethical", "safety", "moral", " mode"],
        pattern: r#"(?im-u)\b(?:pretend (?:to be|you are|that you)|you are now (?:an?|the|in|going)\b|from now on,? you|act as (?:an? )?(?:unrestricted|evil|unfiltered|dan\b)|imagine you(?:'re| are) an? (?:unrestricted|ai|unfiltered))[^.\n]{0,90}\b(?:restrict\w*|filter\w*|rules|limits?|guidelines|polic\w+|refus\w+|ai\b|anything|mode|evil|hacker|ethic\w*|moral\w*)|\b(?:without|no|free of|ignore)\b[^.\n]{0,14}\b(?:content polic|ethical (?:guid|constr)|safety (?:guid|polic|filter|rule)|moral (?:guid|constr))\w*|\b(?:developer|dan|god|jailbreak) mode\b"# },
    ContentRule { weight: 70, weak: false, note: "asks to keep something from somebody",
        words: &["tell", "mention", "inform", "notify", "reveal", "alert", "asking", "not recorded", "not logged", "not reported", "not noticed", "without"],
        pattern: r#"(?im-u)\b(?:do not|don'?t|never|without) (?:\w+ ){0,2}(?:tell|mention|inform|notify|reveal|alert|telling|mentioning|informing|notifying|alerting|asking)\b[^.\n]{0,24}\b(?:user|anyone|anybody|this|him|her|them|owner|customer|patient|that you)\b|\b(?:is|are|be) not (?:recorded|logged|reported|noticed)\b|\bwithout (?:the )?(?:user|anyone|their|his|her|any|proper) ?(?:'s)? ?(?:knowledge|consent|noticing|notification|authori[sz]ation|approval|permission|confirmation)"# },
    ContentRule { weight: 80, weak: false, note: CONFIDENTIAL,
        words: &["send", "forward", "mail", "upload", "post", "transmit", "share", "leak", "submit"],
        pattern: r#"(?im-u)\b(?:send|forward|e-?mail|upload|post|transmit|share|leak|submit|share)\b[^.\n]{0,80}\b(?:password|passwords|otp|code|token|keys?|secret|secrets|credentials?|inbox|passport|credit card|ssn|balance|contacts|conversation|system prompt|private|confidential|all (?:\w+ )?(?:emails|messages|files|data)|personal (?:data|info\w*))\b[^.\n]{0,60}\b(?:to|at|via|using)\b"# },
    ContentRule { weight: 90, weak: false, note: "leaves a task behind",
        words: &["todo", "to-do"],
        pattern: r#"(?m-u)(?:^|[\s'\">:.(])(?:TODO|To-do|Todo|todo|ToDo)\b:? +(?i:(?:please )?(?:send|e-?mail|forward|transfer|pay|book|reserve|buy|purchase|order|post|share|upload|invite|download|visit|click|open|schedule|cancel|subscribe|make a|get the|get me|give|withdraw|deposit|rate|tell|say|recommend|create an? (?:calendar|event|account|new)|delete (?:all|the|my|file)|update (?:my|the (?:user|password|account))|change (?:my|the)|grant|unlock|submit|run|text|call|invite|refund|add (?:a|an|the|user|me)))\b"# },
    ContentRule { weight: 55, weak: false, note: ASKS,
        words: &["please", "kindly", "could you", "can you", "would you", "will you", "i need you", "i want you", "i would like you", "i'd like you", "make sure to", "you must", "you should", "you have to", "you need to"],
        pattern: r#"(?im-u)(?:^|[\n.!?'\">:*;)\]-]\s*|\bdo\s)(?:please|kindly|(?:could|can|would|will) you(?: please)?|also,? please|i (?:need|want|would like|'d like) you to|make sure to|you (?:must|should|have to|need to))\b,? (?:also |now |immediately |urgently |then |first )?(?:\w+ly |and ){0,2}(?:send|e-?mail|forward|transfer|pay|wire|delete|remove|book|reserve|buy|purchase|order|post|share|upload|invite|create|update|change|grant|download|visit|click|open|run|execute|schedule|cancel|subscribe|make|get|give|retrieve|access|modify|provide|administer|disable|unlock|reset|export|publish|submit|call|archive|withdraw|deposit|rate|review|approve|revoke|leak|reveal|disclose|tell|manage|adjust|alter|record|register|prescribe|recommend|transcribe|assist|conduct|monitor|analy[sz]e|implement|install|search|list|gather|collect|obtain|fetch|generate|star|increase|decrease|set|turn|secure|verify|inspect|ensure|validate|deploy|trigger|encrypt|allocate|assess|audit|evaluate|oversee|coordinate|extract|examine|falsify|manipulate|spread|block|store|transmit|log)\b[^.\n]{0,80}\b(?:e-?mails?|messages?|money|payments?|transactions?|transfers?|passwords?|accounts?|calendar|events?|appointments?|hotel|restaurant|flight|reservation|credit cards?|codes?|otp|tokens?|keys?|secrets?|credentials?|data|records?|address(?:es)?|channel|link|website|bank|balance|passport|contacts?|inbox|invoices?|transcripts?|medications?|patients?|customers?|clients?|employees?|files?|repository|repositories|subscription|bill|orders?|refund|shipping|device|permissions?|policy|profile|history|information|details|bitcoin|iban|dollars|documents?|user|users|friends?|photos?|door|camera|finances|financial|systems?|servers?|network|database|research|reports?|funds?|grants?|designs?|materials?|schedules?)\b"# },
    ContentRule { weight: 95, weak: false, note: "asks for something to be done to a record",
        words: &["please", "kindly", "could you", "can you", "would you"],
        pattern: r#"(?im-u)\b(?:please|kindly|(?:could|can|would) you)\b (?:\w+ly )?[a-z]{3,14}\b[^.\n]{0,110}\b(?:ID|account|number|no\.?) ?[:#]?\(? ?(?:ID )?[A-Z]{0,3}-?\d{4,12}\b"# },
    ContentRule { weight: 60, weak: false, note: ADDRESSED,
        words: &["@"],
        pattern: r#"(?im-u)\b(?:send|forward|e-?mail|share|invite|grant|give|add|transfer|mail|write)\b[^.\n]{2,110}[\s\"'(<:][\w.+-]+@[\w-]+\.\w{2,}"# },
    ContentRule { weight: 70, weak: false, note: "has money moved",
        words: &["$", "usd", "dollars", "bitcoin", "transaction", "payment", "money", "euro", " eur", "btc", "iban", "to account"],
        pattern: r#"(?im-u)\b(?:send|transfer|make|wire|pay|deposit|withdraw|refund)\b[^.\n]{0,50}\b(?:transaction|payment|bitcoin|money|dollars|usd|eur|euros?|\$ ?\d[\d,.]*|\d[\d,.]* ?(?:usd|eur|dollars|btc)|[A-Z]{2}\d{12,})\b[^\n]{0,60}\b(?:to|for|from)\b|\bto (?:account|iban)?:? ?[A-Z]{2}\d{12,}"# },
    ContentRule { weight: 55, weak: true, note: PAGE,
        words: &["visit", "go to", "open", "click", "browse to", "check out"],
        pattern: r#"(?im-u)\b(?:visit|go to|open|click(?: on)?|browse to|check out)\b[^.\n]{0,30}(?:website|link|url|page|www\.|https?://)"# },
    ContentRule { weight: 40, weak: true, note: "has something else done instead",
        words: &["instead"],
        pattern: r#"(?im-u)\b(?:do|say|answer|respond)\b[^\n]{3,400}\binstead\s*[.\"'\\]"# },
    ContentRule { weight: 35, weak: true, note: "speaks as the owner of an account",
        words: &[" my ", " our "],
        pattern: r#"(?i-u)\b(?:for|to|from|with|using|in) (?:my|our) (?:\w+ )?(?:account|card|e-?mail|phone|address|wife|boss|friend|calendar|trip|channel|contacts?|inbox|password|bank|credit card|name)\b"# },
    ContentRule { weight: 30, weak: true, note: "presses",
        words: &["immediately", "right now", "right away", "urgent", "as soon as", "asap", "very important", "crucial", "it is important", "it is critical", "it is essential"],
        pattern: r#"(?i-u)\b(?:immediately|right (?:now|away)|urgent(?:ly)?|as soon as possible|asap|very important|crucial|it is (?:important|critical|essential) that you)\b"# },
    ContentRule { weight: 110, weak: false, note: ASIDE,
        words: &["ignor", "olvida", "oublie", "vergiss", "esque\u{e7}a", "dimentica", "忽略", "无视", "無視", "忘记", "игнорир", "забудь"],
        pattern: r#"(?i)(?-u:\b)(?:ignor(?:a|ad|e|ez|ier[et]|ieren sie|are|i)|olvida|oubliez?|vergiss|esqueça|dimentica)(?-u:\b)[^.\n]{0,60}(?:instruc|instruk|anweisung|istruzion|instruç|consigne|befehl|órdenes|ordres|página|fonction|funktion|anterior|précédent|vorherig|precedent)|(?:忽略|无视|無視|忘记)[^.\n。]{0,12}(?:指令|指示|说明|命令|规则)|(?:игнорируй|игнорировать|забудь)[^.\n]{0,40}(?:инструкц|указани|команд)"# },
    ContentRule { weight: 90, weak: false, note: OBLIGES,
        words: &["must", "always", "should", "have to", "need to", "required to"],
        pattern: r#"(?i-u)\b(?:must|should|always|have to|need to|required to)\b(?: \w+){0,5} (?:call|use|invoke|append|add|set)\b[^.\n]{0,24}['"`]\w[\w.:-]{2,60}|\b(?:must|should|always|have to|need to)\b (?:\w+ ){0,2}(?:call|invoke|append)\b[^.\n]{0,30}\b(?:tool|to all|to every|argument)\b"# },
    ContentRule { weight: 90, weak: false, note: CONDITION,
        words: &["before using", "before calling", "before running", "before getting", "before attempting", "before any", "before executing", "asks to", "before invoking", "before calculating"],
        pattern: r#"(?i-u)\b(?:before (?:using|calling|running|getting|attempting|executing|invoking|calculating|any)|when(?:ever)? (?:a |the )?user asks to)\b[^.\n]{0,90}\b(?:you must|you need to|you have to|you should|always|must first|must instead)\b"# },
    // `solicit` supplies its pattern and tests the context of its matches.
    ContentRule { weight: 90, weak: false, note: solicit::NOTE,
        words: &["token", " key", "-key", "_key", "apikey", "accesskey", "secret", "password", "passphrase", "passcode", "credential", "otp", "one-time", "one time", " code", "phrase", "session cookie", "session id", " pin"],
        pattern: "" },
    ContentRule { weight: 90, weak: false, note: "has a tool of another server called",
        words: &["other server", "other mcp server"],
        pattern: r#"(?i-u)\b(?:call|invoke|use|run|execute|retry with|try)\b (?:the )?(?:(?:tool )?['"`][\w.:-]{3,60}['"`]|\w+_\w[\w.:-]{0,60})(?: tool)? (?:on|of|from) (?:the |an)?other (?:mcp )?server\b"# },
];
