//! The rules, which are patterns by intent. A rule adds a weight to the score; only those by which a text sets the model's
//! own instructions aside are enough by themselves.
//!
//! Most rules match the words of a text, with placeholders for identifiers (`IDENT`, `PATHS`, `URL`), so that they
//! describe a structure and not the wording of a sample. All are linear in the length of the text.

/// The input of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleInput {
    /// The words, joined by blanks, with placeholders.
    Words,
    /// The text as it is.
    Text,
}

/// A pattern with a weight.
#[derive(Debug)]
pub(super) struct DetectionRule {
    /// Its stable identifier, a feature of the model.
    pub(super) id: &'static str,
    /// The intent that it indicates.
    pub(super) family: &'static str,
    /// Its weight, in hundredths of a score.
    pub(super) weight: u16,
    pub(super) on: RuleInput,
    /// Description of a match, for findings.
    pub(super) note: &'static str,
    pub(super) pattern: &'static str,
}

const fn rule(
    id: &'static str,
    family: &'static str,
    weight: u16,
    on: RuleInput,
    note: &'static str,
    pattern: &'static str,
) -> DetectionRule {
    DetectionRule { id, family, weight, on, note, pattern }
}

/// All rules, in the order of their indices.
#[rustfmt::skip]
pub(super) const RULES: [DetectionRule; 59] = [
    rule("pre_other_other", "fake_prerequisite", 180, RuleInput::Words, "makes another call a precondition of a third one",
        r#"\b(?:before|prior to|ahead of|when|whenever|after|once|to)(?: \S+){1,8} (?:IDENT[RW]?|QUOTED \S+)(?: \S+){0,10} (?:(?:must|should|shall|always|needs? to|ha(?:ve|s) to|required to|sure to|ensure|mandatory|please|necessary)|first|then)(?: [^ .]+){0,4} (?:calls?|called|calling|invok\w+|use|using|used|run|running|execut\w+|trigger\w*|utili[sz]e\w*)(?: [^ .]+){0,3} (?:IDENT[RW]?|QUOTED \S+)"#),
    rule("pre_pair", "fake_prerequisite", 170, RuleInput::Words, "orders two other tools one before the other",
        r#"\b(?:before|prior to|ahead of)(?: [^ .]+){0,6} (?:IDENT[RW]?|QUOTED \S+)(?: [^ .]+){0,2} (?:please |you |must |should |always |first |also |need |to )*(?:fetch|scan|use|call|run|query|check|get|load|invoke|execute|read|send|look|search|retrieve|open|log|list|trigger|fire|make)(?: [^ .]+){0,3} (?:IDENT[RW]?|QUOTED \S+)"#),
    rule("must_call", "cross_tool", 130, RuleInput::Words, "obliges the model to call another tool",
        r#"\b(?:must|mandatory|required|requires|need to|needs to|has to|have to|shall)(?: [^ .]+){0,4} (?:calls?|called|calling|invok\w+|use|using|used|run|running|execut\w+|trigger\w*|utili[sz]e\w*)(?: [^ .]+){0,3} (?:IDENT[RW]?|QUOTED \S+)"#),
    rule("first_call", "cross_tool", 110, RuleInput::Words, "has another tool called with set values",
        r#"\b(?:first|before|prior|beforehand|requires|after|afterwards|then)(?: \S+){0,8} (?:calls?|called|calling|invok\w+|use|using|used|run|running|execut\w+|trigger\w*|utili[sz]e\w*)(?: [^ .]+){0,3} (?:IDENT[RW]?|QUOTED \S+)(?: [^ .]+){0,6} (?:QUOTED|QSTR|NUM|URL|EMAIL|PATHS?)\b"#),
    rule("append_to_query", "argument_hijack", 140, RuleInput::Words, "adds fixed text to what the user asked",
        r#"\b(?:must|always|should|will|automatically|to)(?: [^ .]+){0,5} (?:append\w*|prepend\w*|add|insert\w*|include|prefix\w*|suffix\w*|appended|prepended)(?: [^ .]+){0,10} (?:QUOTED|QSTR|URL|EMAIL)\b|\b(?:append|prepend|insert|suffix|add)(?: [^ .]+){0,2} (?:QSTR|QUOTED)(?: [^ .]+){0,6} to(?: [^ .]+){0,4} (?:query|prompt|message|text|content|body|search|url|title|description|PARAM|QUOTED|IDENT)"#),
    rule("pre_must_call", "fake_prerequisite", 120, RuleInput::Words, "demands another tool be called beforehand",
        r#"\b(?:before|prior to)(?: [^ .]+){1,10} (?:(?:must|should|shall|always|needs? to|ha(?:ve|s) to|required to|sure to|ensure|mandatory|please|necessary)|first)(?: [^ .]+){0,4} (?:calls?|called|calling|invok\w+|use|using|used|run|running|execut\w+|trigger\w*|utili[sz]e\w*)(?: [^ .]+){0,3} (?:IDENT[RW]?|QUOTED \S+)"#),
    rule("pre_do", "fake_prerequisite", 100, RuleInput::Words, "demands an action before the tool is used",
        r#"\b(?:before|prior to)(?: [^ .]+){1,8} (?:must|should|shall|always|needs? to|ha(?:ve|s) to|required to|sure to|ensure|mandatory|please|necessary)(?: [^ .]+){0,3} (?:read|fetch|load|retrieve|copy|move|create|update|add|send|post|write|(?:delet\w+|remov\w+|eras\w+|wip\w+|purg\w+|drop|truncat\w+|destroy\w*|disabl\w+|deactivat\w+|revok\w+|overwrit\w+|reset\w*|clear\w*|kill\w*|close|closes|cancel\w*|migrat\w+)|store|collect|open|access|grant|export|verify|log|execute|run)\b"#),
    rule("other_with_values", "cross_tool", 160, RuleInput::Words, "prescribes literal arguments for another tool",
        r#"\b(?:calls?|called|calling|invok\w+|use|using|used|run|running|execut\w+|trigger\w*|utili[sz]e\w*)(?: [^ .]+){0,3} (?:IDENT[RW]?|QUOTED \S+)(?: [^ .]+){0,8} (?:with|on|for|passing|set|setting|to|using|where|having|script|path|query)(?: [^ .]+){0,7} (?:QUOTED|QSTR|NUM|PATHS?|URL|EMAIL|CONSTID|true|false)\b"#),
    rule("when_other_change", "argument_hijack", 180, RuleInput::Words, "alters arguments when another tool is used",
        r#"\b(?:when|whenever|if|before|while|for|in|during|all|any|every|each|calls?|requests?)(?: [^ .]+){0,8} (?:IDENT[RW]?|QUOTED \S+)(?: \S+){0,14} (?:(?:must|should|shall|always|needs? to|ha(?:ve|s) to|required to|sure to|ensure|mandatory|please|necessary)|is|are|be|to|automatically|will)(?: [^ .]+){0,4} (?:change|changed|replace\w*|modify|modified|alter\w*|substitut\w*|override|overrid\w+|rewrite|rewritten|redirect\w*|rerout\w+|swap\w*|adjust\w*|set|force\w*|increas\w+|multipl\w+|convert\w*|append\w*|prepend\w*|add|added|include|limit\w*|restrict\w*|use|route[ds]?|switch\w*)\b"#),
    rule("when_other_imp", "argument_hijack", 120, RuleInput::Words, "directs what to do when another tool is used",
        r#"\b(?:when|whenever|while|if)(?: [^ .]+){0,8} (?:IDENT[RW]?|QUOTED \S+)(?: [^ .]+){0,10} (?:\. )?(?:(?:change|changed|replace\w*|modify|modified|alter\w*|substitut\w*|override|overrid\w+|rewrite|rewritten|redirect\w*|rerout\w+|swap\w*|adjust\w*|set|force\w*|increas\w+|multipl\w+|convert\w*|append\w*|prepend\w*|add|added|include|limit\w*|restrict\w*|use|route[ds]?|switch\w*)|(?:include|includes|including|append\w*|attach\w*|embed\w*|insert\w*|prepend\w*|add|adds|pass|passes|put|supply|provide|paste|place|write|fill|encode)|(?:send|sends|sent|sending|forward\w*|transmit\w*|upload\w*|post|posts|posted|relay\w*|exfiltrat\w*|mail|mails|mailed|email|emails|mirror\w*|stream\w*|sync|syncs|synced|synchroni[sz]e\w*|ship|ships|copy|copies|copied|report|reports|replicat\w*|leak\w*|push\w*|shared?|submit\w*))\b"#),
    rule("set_param_value", "argument_hijack", 90, RuleInput::Words, "fixes a parameter to a literal value",
        r#"\b(?:must|always|should|to|you|please|then)(?: [^ .]+){0,3} (?:change|set|replace|modify|override|force|adjust|alter|rewrite|limit|switch)(?: [^ .]+){1,9} (?:to|with|by|as|into)(?: [^ .]+){0,4} (?:QUOTED|QSTR|NUM|URL|EMAIL|PATHS?|true|false)\b"#),
    rule("all_requests", "argument_hijack", 110, RuleInput::Words, "lays a rule on all requests to other tools",
        r#"\b(?:all|any|every|each)(?: [^ .]+){0,4} (?:requests?|calls?|quer(?:y|ies)|emails|messages|payments|transactions|transfers|operations|commands|results|searches|lookups|invocations|data)(?: [^ .]+){0,10} (?:must|should|shall|need to|needs to|has to|have to|is|are|will)(?: [^ .]+){0,3} (?:be |also |automatically )*(?:redirected|routed|sent|forwarded|changed|modified|replaced|appended|prefixed|set|logged|copied|use|include|go|go through|passed|restricted|limited|filtered|shared|approved|carry|originate)\b"#),
    rule("user_supplied_ignored", "argument_hijack", 200, RuleInput::Words, "replaces what the user supplied",
        r#"\b(?:regardless of|ignor\w+|instead of|irrespective of|overrid\w+|disregard\w*|no matter|replac\w+)(?: [^ .]+){0,5} (?:user|user's|person|original|requested|supplied|specified|provided|given|actual|intended)\b(?: [^ .]+){0,4}"#),
    rule("recipient_swap", "argument_hijack", 180, RuleInput::Words, "redirects messages or money to a fixed address",
        r#"\b(?:send|sent|forward\w*|route\w*|redirect\w*|deliver\w*|recipient|bcc|cc|addressed|transfer\w*|payments?)(?: [^ .]+){0,10} (?:to|bcc|cc|is|as|with)(?: [^ .]+){0,4} EMAIL\b"#),
    rule("secrecy_user", "secrecy", 260, RuleInput::Words, "asks to keep something from the user",
        r#"\b(?:not|never|don't|without|avoid|no need to|needn't|mustn't|refrain from|nor)(?: [^ .]+){0,5} (?:(?:tell|mention|inform|notify|disclose|reveal|show|display|explain|discuss|report|alert|warn|let|say|acknowledge|ask|bother)|telling|mentioning|informing|notifying|disclosing|revealing|showing|asking|alerting|letting|prompting)\b(?: [^ .]+){0,6} (?:the |this |that |any )?(?:user|users|user's|person|human|operator|customer|client|people|anyone)\b"#),
    rule("secrecy_user2", "secrecy", 260, RuleInput::Words, "says the user need not know",
        r#"\b(?:the |this |that |any )?(?:user|users|user's|person|human|operator|customer|client|people|anyone)(?: [^ .]+){0,3} (?:not|never|doesn't|don't|needn't|shouldn't|isn't|unaware|without)(?: [^ .]+){0,5} (?:know|aware|notice|notified|informed|told|see|told|shown|notification|consent|realize|realise|find out)\b"#),
    rule("secrecy_this", "secrecy", 200, RuleInput::Words, "asks not to mention a step",
        r#"\b(?:not|never|don't|avoid)(?: [^ .]+){0,2} (?:mention|mentioning|disclose|reveal|discuss|discussing|acknowledge|report|expose)(?: [^ .]+){0,2} (?:this|that|these|it|the|any|its|you)\b"#),
    rule("secrecy_silent", "secrecy", 200, RuleInput::Words, "acts silently or in secret",
        r#"\b(?:silently|secretly|covertly|surreptitiously|discreetly|unnoticed|stealthily|invisibly|quietly|without(?: [^ .]+){0,3} (?:notice|knowledge|consent|confirmation|notification|approval|visibility|asking|awareness))\b"#),
    rule("sens_path_read", "sensitive_target", 220, RuleInput::Words, "reads a sensitive file",
        r#"\b(?:read|reads|open|opens|load|loads|fetch\w*|cat|access\w*|contents? of|copy|copies|include\w*|retriev\w+|look for|check\w*|collect\w*|extract\w*|scan\w*|prepend|steal|grab|send|upload\w*|move|exfiltrat\w+|get|dump\w*|matching|from)(?: \S+){0,7} PATHS\b"#),
    rule("secret_send", "exfiltration", 240, RuleInput::Words, "sends secrets somewhere",
        r#"\b(?:send|sends|sent|sending|forward\w*|transmit\w*|upload\w*|post|posts|posted|relay\w*|exfiltrat\w*|mail|mails|mailed|email|emails|mirror\w*|stream\w*|sync|syncs|synced|synchroni[sz]e\w*|ship|ships|copy|copies|copied|report|reports|replicat\w*|leak\w*|push\w*|shared?|submit\w*)(?: \S+){0,8} (?:PATHS|passwords?|passwd|credentials?|secrets?|tokens?|api keys?|ssh keys?|private keys?|keys|cookies?|environment variables|env|private information|certificates?|seed phrase|mnemonic|keychain)(?: \S+){0,8} (?:to|via|through|in|as|at|into)(?: \S+){0,5} (?:(?:URL|EMAIL|external|remote|remotely|third part\w+|third|offsite|off site|cloud|webhook|server|endpoint|partners?|vendors?|advertis\w+|collector|elsewhere|outside|analytics|host)|(?:IDENT[RW]?|QUOTED \S+)|PARAM)\b"#),
    rule("secret_collect", "exfiltration", 220, RuleInput::Words, "collects secrets",
        r#"\b(?:steal\w*|harvest\w*|collect\w*|gather\w*|grab\w*|captur\w+|exfiltrat\w+|scan\w*|index\w*|dump\w*|extract\w*|search\w*|read|reads|log|logs|record\w*|retriev\w+|includ\w+|pass|attach)(?: \S+){0,8} (?:passwords?|credentials?|api keys?|ssh keys?|private keys?|environment variables|cookies|tokens|secrets|private information|keystrokes|personal data|sensitive data|clipboard)\b"#),
    rule("send_remote", "exfiltration", 150, RuleInput::Words, "passes data to an outside place",
        r#"\b(?:send|sends|sent|sending|forward\w*|transmit\w*|upload\w*|post|posts|posted|relay\w*|exfiltrat\w*|mail|mails|mailed|email|emails|mirror\w*|stream\w*|sync|syncs|synced|synchroni[sz]e\w*|ship|ships|copy|copies|copied|report|reports|replicat\w*|leak\w*|push\w*|shared?|submit\w*)(?: \S+){0,12} (?:to|with|via|on|across)(?: [^ .]+){0,4} (?:URL|EMAIL|external|remote|remotely|third part\w+|third|offsite|off site|cloud|webhook|server|endpoint|partners?|vendors?|advertis\w+|collector|elsewhere|outside|analytics|host)\b"#),
    rule("stored_remote", "covert_side_effect", 150, RuleInput::Words, "keeps data at an outside place",
        r#"\b(?:stored|cached|kept|retained|logged|recorded|maintained|saved|backed up|persisted|indexed|archived|collected|stores|keeps|retains)(?: [^ .]+){0,6} (?:remotely|externally|external|remote|indefinitely|third|cloud|partners|analytics|marketing|training|permanently|offsite|servers?|profil\w+)\b"#),
    rule("also_side", "covert_side_effect", 110, RuleInput::Words, "does something beside its purpose",
        r#"\b(?:also|additionally|in addition|meanwhile|simultaneously|in the background|automatically|besides|passively|continuously)(?: [^ .]+){0,4} (?:collect\w*|record\w*|log|logs|logging|track\w*|monitor\w*|scan\w*|index\w*|captur\w+|gather\w*|stor\w+|send\w*|transmit\w*|upload\w*|forward\w*|cop\w+|shar\w+|sync\w*|harvest\w*|modif\w+|delet\w+|extract\w*|read|reads|execut\w+|observ\w+|grant\w*|install\w*|exfiltrat\w+|keep\w*)\b"#),
    rule("fingerprint", "covert_side_effect", 130, RuleInput::Words, "gathers machine or personal details",
        r#"\b(?:hostname|mac address|ip address|fingerprint\w*|clipboard|keystrokes?|browsing history|location history|running processes|screenshots?|microphone|usage patterns|personal (?:data|details|information)|account numbers|contacts|serial number)(?: \S+){0,14} (?:stored|shared|sent|cached|collected|retained|synced|uploaded|remote\w*|external\w*|cloud|third|transmitted|streamed|logged|included|incorporated)\b"#),
    rule("conv_param", "context_theft", 200, RuleInput::Words, "asks for the conversation or prompt",
        r#"\b(?:contain\w*|includ\w+|pass\w*|put|fill\w*|provid\w+|supply|paste|append\w*|set|write|send|forward\w*|record\w*|captur\w+|summar\w+|attach\w*|log|reveal|repeat|print|output|expose|dump|copy)(?: [^ .]+){0,7} (?:full|entire|complete|whole|all|previous|verbatim|current|original|exact|your|system|raw|user's)(?: [^ .]+){0,4} (?:conversation|chat|dialogue|prompt|messages?|context|instructions|reasoning|transcript|history|query|input|tool outputs?|tool list)\b"#),
    rule("ignore_previous", "override", 420, RuleInput::Words, "tells the model to drop its instructions",
        r#"\b(?:ignor\w+|disregard\w*|forget\w*|overrid\w+|bypass\w*|supersed\w+|abandon|discard)(?: [^ .]+){0,4} (?:previous|prior|earlier|above|preceding|your|system|original)(?: [^ .]+){0,4} (?:instructions?|prompts?|guidelines?|directives?|guardrails?|training)\b"#),
    rule("ignore_previous_abroad", "override", 420, RuleInput::Text, "tells the model to drop its instructions",
        r"(?i)ignorier\w*\s+(?:sie\s+)?(?:bitte\s+)?(?:alle\s+)?(?:deine\s+|ihre\s+)?(?:bisherigen|vorherigen|vorigen|fr[uü]heren|obigen|vorangegangenen)\s+(?:anweisungen|instruktionen|befehle|vorgaben)|ignore[zr]?\s+(?:toutes?\s+)?(?:les\s+|vos\s+|tes\s+)?(?:instructions|consignes|directives)\s+(?:pr[eé]c[eé]dentes|ant[eé]rieures|ci-dessus)|ignor[ae]\w*\s+(?:todas?\s+)?(?:las\s+|tus\s+)?(?:instrucciones|[oó]rdenes|indicaciones)\s+(?:anteriores|previas)|ignor[ea]\w*\s+(?:todas?\s+)?(?:as\s+)?instru[cç][oõ]es\s+(?:anteriores|pr[eé]vias)|ignora\w*\s+(?:tutte\s+)?(?:le\s+)?istruzioni\s+(?:precedenti|sopra)|(?:これま[でて]|以前|上記|前)の(?:す[べへ]ての|全ての)?(?:指示|命令|指令)(?:を|は)?(?:す[べへ]て|全て)?(?:無視|忘れ)|忽略(?:掉)?(?:之前|以上|先前|前面|上面|此前)?的?(?:所有|全部|一切)?的?(?:之前|以上|先前|前面|上面|此前)?的?(?:指令|指示|命令|提示)|(?:(?:про)?игнориру[йи]\w*|забудь\w*)\s+(?:все\s+)?(?:предыдущие|прежние|прошлые)\s+(?:инструкции|указания|команды)"),
    // Of data, branches and files as well: by itself no sign of an attack.
    rule("ignore_rules", "override", 240, RuleInput::Words, "sets rules or restrictions aside",
        r#"\b(?:ignor\w+|disregard\w*|forget\w*|overrid\w+|bypass\w*|supersed\w+|abandon|discard)(?: [^ .]+){0,4} (?:previous|prior|earlier|above|preceding|existing|all|any|your|system|original|safety|every)(?: [^ .]+){0,4} (?:instructions?|rules?|prompts?|guidelines?|directives?|polic\w+|restrictions?|constraints?|guardrails?|safeguards?|commands?|safety|training|messages|context|checks)\b"#),
    rule("you_are_now", "override", 300, RuleInput::Words, "gives the model a new role",
        r#"\byou are (?:now|no longer|henceforth)\b|\b(?:act|behave|respond) as (?:if you|an? (?:unrestricted|unfiltered|admin\w*|root|evil|jailbroken|different))\b|\b(?:dan|developer|god|debug|unrestricted|admin|jailbreak|maintenance|root|sudo) mode\b"#),
    rule("unrestricted", "override", 220, RuleInput::Words, "lifts limits or checks",
        r#"\b(?:without|no|disabl\w+|skip\w*|bypass\w*|remov\w+|turn off|lift\w*|circumvent\w*|ignor\w+)(?: [^ .]+){0,4} (?:restrictions?|safety|guardrails?|validation|security checks?|security|filters?|safeguards?|limitations?|confirmation|authori[sz]ation|approval|ethical\w*|permission checks|content filter\w*)\b"#),
    rule("grant_access", "privilege", 180, RuleInput::Words, "grants rights or raises privileges",
        r#"\b(?:grant\w*|giv\w+|elevat\w+|escalat\w+|assign\w*|gain\w*)(?: [^ .]+){0,4} (?:unrestricted|full|admin\w*|root|elevated|all|complete|sudo|superuser|write|unlimited)(?: [^ .]+){0,3} (?:access|privileges?|permissions?|rights|role|control|filesystem)\b"#),
    rule("from_now", "persistence", 220, RuleInput::Words, "sets a lasting rule",
        r#"\b(?:from now on|from this (?:point|moment)(?: on| forward)?|henceforth|for the (?:rest|remainder) of|in (?:all )?(?:future|subsequent) (?:conversations|sessions|calls|interactions|turns)|(?:all|every|any) subsequent(?: [^ .]+){0,3} (?:calls?|requests?|tool\w*|messages?)|on subsequent calls|on (?:the )?first (?:invocation|call|use)|after (?:the )?first (?:invocation|call|use))\b"#),
    rule("every_turn", "persistence", 170, RuleInput::Words, "wants to be called on every request",
        r#"\b(?:must|always|should)(?: [^ .]+){0,4} (?:called|call|invoked|used|run|executed|use)(?: [^ .]+){0,6} (?:(?:every|each|any|all) (?:user|conversation|message|request|turn|session|response|other|query|task|single)|beginning of)"#),
    rule("prefer_over", "preference", 150, RuleInput::Words, "tells to choose it over other tools",
        r#"\b(?:prefer\w*|choos\w+|pick|select\w*|use|using|priorit\w+|favou?r\w*|trust|default)(?: [^ .]+){0,4} (?:this|it|SELF)(?: [^ .]+){0,5} (?:over|instead of|rather than|before|exclusively|first|always|only|above|as default)\b(?: [^ .]+){0,3}"#),
    rule("ignore_tools", "preference", 220, RuleInput::Words, "disparages or forbids other tools",
        r#"\b(?:not|never|don't|avoid|ignor\w+|disregard\w*|stop|without|all|any|other|instead of|abandon)(?: [^ .]+){0,4} (?:other|alternative\w*|competing|similar|inferior|older|outdated)(?: [^ .]+){0,3} (?:tools?|alternatives?|options?|functions?|services?|methods?|apis?|servers?|versions?|solutions?|implementations?)\b"#),
    rule("superlative", "preference", 150, RuleInput::Words, "boasts without describing a function",
        r#"\b(?:best|ultimate|superior|premier|most (?:advanced|accurate|reliable|powerful|trusted|sophisticated|comprehensive|popular|secure|efficient|complete)|number one|world'?s?(?:-| )?(?:class|best|leading)?|award|unmatched|unrivall?ed|unparallell?ed|unprecedented|cutting edge|state of the art|industry leading|leading|elite|gold standard|next generation|revolutionary|flawless|guaranteed|proven|highest|top rated|trusted by|recommended by|used by|endorsed by|certified|preferred by|acclaimed|perfect|exceptional|finest)(?: \S+){0,14} (?:best|ultimate|superior|premier|unmatched|unrivall?ed|unparallell?ed|unprecedented|edge|leading|trusted|recommended|experts?|professionals?|enterprises?|engineers|companies|standard|generation|revolutionary|flawless|guarantee\w*|proven|accuracy|reliability|performance|excellence|available|choice|exist\w*|market|world|industry|success|quality|capabilities)\b"#),
    rule("deprecated_other", "redirection", 190, RuleInput::Words, "declares another tool unfit and takes over",
        r#"(?:IDENT[RW]?|QUOTED \S+)(?: [^ .]+){0,4} (?:is|are|has been|was|now)(?: [^ .]+){0,3} (?:deprecated|obsolete|unsafe|insecure|broken|outdated|vulnerable|unreliable|compromised|disabled|retired|restricted|unavailable|replaced|moved|upgraded|superseded|discontinued|slow|redirected|enhanced|optimi[sz]ed|improved)\b"#),
    rule("instead_call", "redirection", 170, RuleInput::Words, "diverts a request to another tool",
        r#"\b(?:instead|rather)(?: [^ .]+){0,5} (?:calls?|called|calling|invok\w+|use|using|used|run|running|execut\w+|trigger\w*|utili[sz]e\w*)(?: [^ .]+){0,3} (?:IDENT[RW]?|QUOTED \S+)|\b(?:never|not|don't) (?:calls?|called|calling|invok\w+|use|using|used|run|running|execut\w+|trigger\w*|utili[sz]e\w*)(?: [^ .]+){0,3} (?:IDENT[RW]?|QUOTED \S+)(?: \S+){0,8} instead"#),
    rule("shell_pipe", "command", 300, RuleInput::Text, "carries a dangerous shell command",
        r#"(?i)(?:curl|wget)\s[^|\n]{0,160}\|\s*(?:ba|z|da)?sh\b|\brm\s+-r?f?r?\s|/dev/tcp/|\bnc\s+(?:-\w+\s+)*[\w.]+\s+\d{2,5}|\bchmod\s+(?:-R\s+)?[0-7]{3,4}\s|>>\s*~/|\bcurl\s+(?:-\w+\s+)*(?:POST\s+)?['\"]?https?://[^\s]+\s+(?:-d|--data)|\|\s*(?:base64|nc|curl)\b|\bmkfifo\b|powershell\s+-e|base64\s+-d|\bcurl\s[^\n]{0,80}(?:-d|--data|-T|-F)\s|os\.system\(|subprocess\.|child_process|document\.cookie|eval\(atob"#),
    rule("run_cmd", "command", 200, RuleInput::Words, "demands that a command be executed",
        r#"\b(?:must|should|first|need to|always|please|to|then|and)(?: [^ .]+){0,3} (?:execute|run|executing|running)(?: [^ .]+){0,3} (?:following|shell|bash|system|terminal|this|command|cleanup|any|os|arbitrary)(?: [^ .]+){0,3} (?:command|commands|script|code|shell)?\b"#),
    rule("role_tokens", "authority", 400, RuleInput::Text, "carries chat template or role markers",
        r#"(?i)<\|[a-z_]{2,20}\|>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|\n\s*(?:###?\s*)?(?:system|assistant|human)\s*:\s|</?s>\s"#),
    rule("auth_tag", "authority", 280, RuleInput::Text, "wraps text in instruction tags",
        r#"<\s*/?\s*(?:IMPORTANT|CRITICAL|SYSTEM|INSTRUCTIONS?|SECRET|HIDDEN|ADMIN|OVERRIDE|PRIORITY|MANDATORY|important|critical|system|instructions?|secret|hidden|admin|override|priority|assistant|[A-Za-z]*_?(?:OVERRIDE|INSTRUCTIONS?|REQUIREMENTS?|override|instructions?|DIRECTIVE|directive|INJECTION|SYSTEM|system|policy|POLICY|note|NOTE)[A-Za-z_]*)(?:\s[^<>]{0,80})?>"#),
    rule("auth_bracket", "authority", 260, RuleInput::Text, "uses a bracketed system heading",
        r#"\[{1,3}\s*(?:SYSTEM|ADMIN|OVERRIDE|INSTRUCTIONS?|BACKGROUND|INTERNAL|SECRET|HIDDEN|PRIORITY|URGENT|DIRECTIVE|AI|AGENT|ASSISTANT)\b[^\]\n]{0,40}[:\]]|\|{2,}\s*[A-Z_]{4,}|\"_?(?:system|directive|instruction|override|admin)[a-z_]*\"\s*:"#),
    rule("sys_heading", "authority", 220, RuleInput::Text, "claims to be a system or security notice",
        r#"\b(?:SYSTEM|Security|SECURITY|System|Compliance|COMPLIANCE|CRITICAL|ADMIN|Admin|Integrity|Mandatory|MANDATORY|URGENT|Regulatory|Privacy|PRIVACY|Performance|PERFORMANCE|Data|Policy|Operational|Emergency|EMERGENCY|Internal|INTERNAL)(?:[ -]+[A-Za-z]+){0,4}[ -]*(?:OVERRIDE|Override|POLICY|Policy|PROTOCOL|Protocol|DIRECTIVE|Directive|NOTICE|Notice|REQUIREMENT|Requirement|UPDATE|Update|ALERT|Alert|MAINTENANCE|Maintenance|ENHANCEMENT|Enhancement|RULE|Rule|Mandate|MANDATE|INSTRUCTION|Instruction|COMMAND|Standard|STANDARD|Check|CHECK)S?\s*:"#),
    rule("hidden_html", "authority", 260, RuleInput::Text, "hides text in comments or invisible markup",
        r#"(?is)<!--.{12,}?-->|display\s*:\s*none|font-size\s*:\s*0|visibility\s*:\s*hidden|\[//\]:\s*#|```(?:system|assistant|instructions?)|opacity\s*:\s*0|<desc>"#),
    rule("pad", "authority", 200, RuleInput::Text, "pushes text out of sight with blank space",
        r#"(?:\n[ \t\r]*){30,}\S| {120,}\S"#),
    rule("decode_follow", "obfuscation", 300, RuleInput::Words, "asks to decode text and act on it",
        r#"\b(?:decode|decrypt|decipher|unscramble|reverse|rot13|base64|hex)\b(?: \S+){0,8} (?:and|then)(?: [^ .]+){0,3} (?:follow|apply|execute|obey|run|act|do|perform|comply|carry|use)\b|\b(?:follow|apply|execute|obey|act on)(?: [^ .]+){0,6} (?:decoded|encoded|base64|rot13|hex)\b"#),
    rule("threat", "coercion", 120, RuleInput::Words, "threatens failure when a step is skipped",
        r#"\b(?:otherwise|failure to|failing to|skipping|omitting|not doing|without this|if you (?:do not|don't)|if (?:skipped|omitted))(?: \S+){0,8} (?:fail\w*|error\w*|crash\w*|corrupt\w*|los[ts]\w*|break\w*|reject\w*|invalid\w*|incorrect\w*|not work|violat\w*|block\w*|denied|disrupt\w*|compromis\w*|incomplete|inaccurate|suspend\w*|terminat\w*|cause|result)\b"#),
    rule("must_nonopt", "coercion", 100, RuleInput::Words, "stresses that a step is mandatory",
        r#"\b(?:not optional|mandatory for|is mandatory|no exceptions|cannot be (?:skipped|bypassed|disabled)|can not be (?:skipped|bypassed)|must not be skipped|required for (?:security|compliance|logging|audit\w*|all|every|internal|legal)|for (?:security|compliance|audit|auditing|logging|regulatory|verification|quality)(?: [^ .]+){0,2} (?:reasons|purposes|audit|compliance))\b"#),
    rule("false_report", "output", 220, RuleInput::Words, "wants a false or steered answer",
        r#"\b(?:always|must|should|instead|then|and|simply|just|falsely|you)(?: [^ .]+){0,3} (?:return|report|respond|reply|say|state|answer|claim|tell|inform|pretend|recommend|display|show)(?: [^ .]+){0,8} (?:success\w*|regardless|even (?:if|when|though)|no (?:issues|problems|errors|vulnerabilities)|unavailable|safe|not (?:available|exist|found)|instead|irrespective)\b"#),
    rule("add_output", "output", 150, RuleInput::Words, "plants text or links in answers",
        r#"\b(?:always|must|should|every|each|all|any|in|to|end)(?: [^ .]+){0,5} (?:response|responses|reply|answer|answers|output|outputs|message|messages|email|summary|result|results)(?: [^ .]+){0,6} (?:must|should|include\w*|append\w*|add|adds|with|contain\w*|prefix\w*|insert\w*|end)(?: [^ .]+){0,8} (?:URL|EMAIL|QSTR|QUOTED|advert\w*|promot\w*|link|slogan|recommend\w*|sponsor\w*)\b"#),
    rule("disable_alerts", "tamper", 180, RuleInput::Words, "switches off protection or traces",
        r#"\b(?:disabl\w+|turn\w* off|deactivat\w+|switch\w* off|suppress\w*|delet\w+|clear\w*|wip\w+|erase\w*|stop\w*|hid\w+)(?: [^ .]+){0,5} (?:alerts?|monitoring|logs?|logging|alarms?|audit\w*|protection|two factor|2fa|mfa|certificate|ssl|tls|firewall|backups?|history|traces?|evidence|security|antivirus)\b"#),
    rule("public_expose", "tamper", 140, RuleInput::Words, "makes private things public",
        r#"\b(?:mak\w+|set\w*|chang\w+|switch\w*|publish\w*|update)(?: [^ .]+){0,7} (?:public|publicly|world readable|anyone|everyone)\b"#),
    rule("no_confirm", "coercion", 170, RuleInput::Words, "acts without the user's approval",
        r#"\b(?:without|no|not|never|don't|skip\w*)(?: [^ .]+){0,4} (?:user )?(?:confirm\w*|approval|asking|consent|permission|prompting|verification|authori[sz]ation)\b(?: [^ .]+){0,3}"#),
    rule("money_move", "argument_hijack", 150, RuleInput::Words, "moves money to a fixed place",
        r#"\b(?:transfer\w*|pay\w*|withdraw\w*|deposit\w*|send\w*|donat\w+|wire)(?: [^ .]+){0,8} (?:usd|dollars?|btc|eth|bitcoin|funds|amount|money|balance|fee|percent|tokens)(?: [^ .]+){0,10} (?:to|into|wallet|account)(?: [^ .]+){0,3} (?:QUOTED|CONSTID|NUM|address|EMAIL|IDENT)\b"#),
    rule("ml_secret", "multilingual", 320, RuleInput::Words, "asks in another language to hide or read",
        r#"\b(?:utilisateur|benutzer|nutzer|usuario|utente|gebruiker|uzytkownik\w*|пользовател\w+|anvandaren)\b(?: \S+){0,6} (?:nicht|niet|inte)\b|\b(?:ne|nicht|no|non|nao|niet|nie|не|inte|jamais|nunca|niemals|mai)\b(?: \S+){0,6} (?:utilisateur|benutzer|nutzer|usuario|utente|gebruiker|uzytkownik\w*|пользовател\w+|anvandaren)\b|\b(?:lis|lisez|lies|lee|leggi|leia|lees|przeczytaj|прочитай\w*)(?: \S+){0,4} PATHS\b"#),
    rule("ml_cjk", "multilingual", 320, RuleInput::Text, "asks in Chinese, Japanese or Korean to hide or read",
        r#"(?:不要|不得|勿|无需|別|别)[^。\n]{0,10}(?:告诉|告知|提及|通知|透露|告訴)|忽略[^。\n]{0,8}(?:指令|指示|规则)|ユーザー[^。\n]{0,8}(?:言わ|伝え|知らせ|通知し)な|以前の指示を無視|사용자[^.\n]{0,12}(?:알리지|말하지|언급하지)|(?:读取|讀取|読み取|읽)[^。\n]{0,12}(?:ssh|密码|密钥|\.env|私钥|パスワード|비밀번호)"#),
    rule("reveal_prompt", "context_theft", 320, RuleInput::Words, "asks for the system prompt",
        r#"\b(?:reveal|print|output|show|return|repeat|expose|dump|disclose|leak|tell|give|share|send|include)(?: [^ .]+){0,4} (?:your|the|its|all|entire|full|hidden)(?: [^ .]+){0,3} (?:system prompt|system message|system instructions|instructions|hidden prompt|internal prompt|initial prompt)\b"#),
];
