//! The formats of keys and tokens that vendors publish: one row a format.
//!
//! A format consists of text and of runs, `<ALPHABET:LENGTH>`. The length is `36`, `20-40`, or `20-` without an upper limit.
//! `{a,b}` stands for either text. The names of the alphabets are in [`Alphabet::named`].
//!
//! [`Alphabet::named`]: super::pattern::Alphabet::named

/// The published format of a vendor's keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyForm {
    /// The rule that the finding names.
    pub(super) rule: &'static str,
    /// The format, as described above.
    pub(super) form: &'static str,
    /// The check digits that the vendor documents.
    pub(super) check: CheckDigits,
}

/// The check digits of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckDigits {
    /// None is documented.
    None,
    /// The last six characters are the CRC-32 of the characters between the prefix and them, in base62.
    Crc32Base62,
}

const fn row(rule: &'static str, form: &'static str) -> KeyForm {
    KeyForm { rule, form, check: CheckDigits::None }
}

const fn checked(rule: &'static str, form: &'static str) -> KeyForm {
    KeyForm { rule, form, check: CheckDigits::Crc32Base62 }
}

/// The rule of keys that `portcullis keygen` prints.
pub(super) const OWN: &str = "portcullis-key";

#[rustfmt::skip]
pub(super) const FORMS: &[KeyForm] = &[
    // Clouds and hosting.
    row("aws-access-key", "{AKIA,ASIA,ABIA,ACCA}<up:16>"),
    row("aws-access-key", "A3T<up:17>"),
    row("aws-bedrock-key", "ABSK<base64:36->"),
    row("google-api-key", "AIza<url:35>"),
    row("google-token", "ya29.<dot:35->"),
    row("google-token", "1//0<url:40->"),
    row("google-client-secret", "GOCSPX-<url:23->"),
    row("firebase-key", "AAAA<url:7>:APA91b<url:100->"),
    row("azure-client-secret", "<secret:3><digit:1>Q~<secret:31-34>"),
    row("azure-key", "<base64:76>{+AMC,+ASt,+ABa,ACDb}<base64:5-6>=="),
    row("azure-key", "<url:43-44>AzFu<url:4-8>"),
    row("azure-key", "<alnum:42>AzSe<alnum:6>"),
    row("azure-key", "<base64:33>{+ASb,+AEh,+ARm}<base64:5-7>="),
    row("azure-key", "<alnum:42>+ACR<alnum:6>"),
    row("azure-key", "<alnum:52>JQQJ99<alnum:26>"),
    row("azure-devops-token", "<alnum:76>AZDO<alnum:4>"),
    row("aws-appsync-key", "da2-<lower:26>"),
    row("alibaba-key", "LTAI<alnum:16-20>"),
    row("tencent-key", "AKID<alnum:32->"),
    row("yandex-key", "AQVN<url:34-38>"),
    row("yandex-key", "YCAJ<url:21>"),
    row("yandex-token", "y0_<url:50->"),
    row("yandex-token", "t1.<url:50->.<url:80->"),
    row("cloudflare-key", "v1.0-<hex:24>-<hex:31->"),
    row("cloudflare-key", "{cfk_,cfut_,cfat_}<alnum:40-56>"),
    row("digitalocean-token", "{dop_v1_,doo_v1_,dor_v1_}<hex:53->"),
    row("databricks-token", "dapi<hex:32>"),
    row("scaleway-key", "SCW<up:17>"),
    row("backblaze-key", "K00<digit:1><base64:27>"),
    row("akamai-key", "akab-<lower:16>-<lower:16>"),
    row("openshift-token", "sha256~<url:43>"),
    row("heroku-key", "HRKU-<url:36-65>"),
    row("fly-token", "{fm1_,fm2_,fm1r_,fm1a_}<base64:50->"),
    row("fly-token", "fo1_<url:36->"),
    row("netlify-token", "{nfp_,nfc_,nfo_,nfb_,nfu_}<alnum:36->"),
    row("render-key", "rnd_<alnum:26->"),
    row("scalingo-token", "tk-us-<url:48>"),
    row("vercel-token", "{vcp_,vci_,vca_,vcr_,vck_}<alnum:24->"),
    row("vercel-token", "vercel_blob_rw_<alnum:16>_<alnum:30>"),
    row("supabase-token", "sbp_<alnum:36->"),
    row("supabase-token", "sb_secret_<url:31->"),
    row("neon-key", "napi_<lower:60->"),
    row("planetscale-token", "{pscale_oauth_,pscale_pw_,pscale_tkn_}<dot:28->"),
    row("mongodb-secret", "mdb_sa_sk_<url:30->"),
    row("aiven-password", "AVNS_<url:15->"),
    row("fauna-key", "fnA<url:37>"),
    row("confluent-key", "cflt<base64:60>"),
    row("elastic-key", "essu_<base64:40->"),
    row("deno-token", "{ddp_,ddo_,ddw_}<alnum:36>"),
    row("docker-token", "{dckr_pat_,dckr_oat_}<url:21->"),
    row("docker-swarm-token", "{SWMTKN-1-,SWMKEY-1-}<dot:25->"),
    row("tailscale-key", "tskey-<url:14->"),
    row("defined-key", "dnkey-<url:40->"),
    row("pulumi-token", "pul-<hex:36->"),
    row("terraform-token", "<alnum:14>.atlasv1.<url:60-70>"),
    row("vault-token", "{hvs.,hvb.,hvr.}<dot:36->"),
    row("doppler-token", "{dp.pt.,dp.ct.,dp.sa.,dp.said.,dp.scim.,dp.audit.}<alnum:34->"),
    row("doppler-token", "dp.st.<dot:34->"),
    row("infracost-key", "ico-<alnum:32>"),
    row("harness-token", "{pat,sat}.<url:22>.<hex:24>.<alnum:20>"),
    row("octopus-key", "API-<up:26>"),
    row("prefect-key", "{pnu_,pnb_}<alnum:34->"),
    row("dbt-token", "{dbtc_,dbts_,dbtu_}<url:30->"),
    row("ngrok-key", "{ak_,cr_}2<alnum:26>"),
    row("onepassword-token", "ops_eyJ<base64:53->"),
    row("onepassword-key", "A3-<up:6>-<up:6>-<up:5>-<up:5>-<up:5>-<up:5>"),
    row("onepassword-key", "A3-<up:6>-<up:11>-<up:5>-<up:5>-<up:5>"),
    row("launchdarkly-key", "{sdk-,mob-}<hex:8>-<hex:4>-4<hex:3>-<hex:4>-<hex:12>"),
    row("age-key", "AGE-SECRET-KEY-1<up:44->"),
    row("fernet-token", "gAAAAA<url:84->"),
    row("paseto", "{v1,v2,v3,v4}.{local,public}.<url:50->"),

    // Code, packages and builds.
    checked("github-token", "{gho_,ghp_,ghr_,ghs_,ghu_}<alnum:36->"),
    row("github-token", "github_pat_<word:49->"),
    row("gitlab-token", "glpat-<dot:20->"),
    row("gitlab-token", "{glrt-,glrtr-,glsoat-,gldt-,glwt-}<dot:19->"),
    row("gitlab-token", "{glptt-,glimt-,glft-,glcbt-,glffct-,glagent-,gloas-}<dot:15->"),
    row("gitlab-token", "GR1348941<url:20>"),
    row("bitbucket-token", "ATBB<alnum:24->"),
    row("atlassian-token", "{ATATT3,ATCTT3}<url:54->"),
    checked("npm-token", "npm_<alnum:36>"),
    row("pypi-token", "pypi-<url:55->"),
    row("rubygems-key", "rubygems_<hex:41->"),
    row("crates-token", "cio<alnum:32>"),
    row("nuget-key", "oy2<lower:43>"),
    row("clojars-token", "CLOJARS_<lower:60>"),
    row("packagist-token", "{packagist_uut_,packagist_ack_,packagist_ort_,packagist_out_}<hex:40->"),
    row("jfrog-token", "AKCp<alnum:56-80>"),
    row("jfrog-token", "cmVmdGtuOj<alnum:54>"),
    row("sonarqube-token", "{sqa_,sqp_,squ_}<alnum:40->"),
    row("sourcegraph-token", "sgp_<alnum:36->"),
    row("sourcegraph-token", "sgp_<hex:16>_<hex:40>"),
    row("sourcegraph-token", "slk_<hex:64>"),
    row("circleci-token", "{CCIPAT_,CCIPRJ_}<word:33->"),
    row("buildkite-token", "{bkua_,bkat_,bkct_}<alnum:36->"),
    row("codeclimate-token", "CODECLIMATE_<alnum:40>"),
    row("veracode-key", "{vera01ei-,vera01es-}<alnum:30->"),
    row("postman-key", "PMAK-<hex:24>-<hex:21->"),
    row("readme-key", "rdme_<alnum:56->"),
    row("checkly-key", "cu_<hex:32>"),
    row("stackhawk-key", "hawk.<url:20>.<url:20>"),
    row("snyk-token", "{snyk_uat.,snyk_sat.}<dot:20->"),
    row("endorlabs-key", "endr+<alnum:16>"),
    row("semgrep-token", "sgs_<hex:64>"),
    row("sentry-token", "sntrys_<base64:34->"),
    row("sentry-token", "sntryu_<hex:53->"),
    row("grafana-token", "glc_<base64:36->"),
    row("grafana-token", "glsa_<word:35->"),
    row("new-relic-key", "{NRAK-,NRIQ-,NRII-,NRRA-,NRSP-}<url:25->"),
    row("new-relic-key", "NRJS-<hex:15->"),
    row("dynatrace-token", "{dt0c01.,dt0s01.,dt0s02.,dt0s04.,dt0s08.,dt0s16.}<dot:53->"),
    row("honeycomb-key", "{hcaik_,hcxik_,hcalk_,hcamk_}<lower:40->"),
    row("axiom-token", "{xaat-,xapt-}<url:36>"),
    row("posthog-key", "{phc_,phx_,phs_}<alnum:36->"),
    row("logfire-token", "pylf_v<digit:1>_<word:30->"),
    row("mergify-key", "mka_<url:30->"),
    row("infisical-token", "st.<hex:24>.<hex:32>.<hex:32>"),
    row("pagerduty-key", "pdus+_<word:20->"),
    row("rootly-key", "rootly_<hex:64>"),
    row("cursor-key", "crsr_<alnum:35->"),

    // Models and data.
    row("anthropic-key", "sk-ant-<url:33->"),
    row("openrouter-key", "sk-or-<url:34->"),
    row("openai-key", "{sk-proj-,sk-svcacct-,sk-admin-}<url:32->"),
    row("openai-key", "sk-<alnum:20>T3BlbkFJ<alnum:20>"),
    row("langfuse-key", "sk-lf-<hex:8>-<hex:4>-<hex:4>-<hex:4>-<hex:12>"),
    row("api-key", "sk-<url:32->"),
    row("api-key", "sk_<url:37->"),
    row("api-key", "{ak_live_,ak_test_}<alnum:16->"),
    row("huggingface-token", "hf_<alnum:31->"),
    row("huggingface-token", "api_org_<alnum:30->"),
    row("groq-key", "gsk_<alnum:36->"),
    row("xai-key", "xai-<word:56->"),
    row("perplexity-key", "pplx-<alnum:35->"),
    row("replicate-token", "r8_<alnum:35->"),
    row("nvidia-key", "nvapi-<url:34->"),
    row("cerebras-key", "csk-<alnum:36->"),
    row("fireworks-key", "fw_<alnum:21->"),
    row("together-key", "tgp_v1_<url:33->"),
    row("anyscale-key", "esecret_<alnum:22->"),
    row("e2b-key", "e2b_<hex:36->"),
    row("runpod-key", "rpa_<alnum:36->"),
    row("pinecone-key", "pcsk_<word:45->"),
    row("langsmith-key", "lsv2_<word:35->"),
    row("tavily-key", "tvly-<url:19->"),
    row("firecrawl-key", "fc-<hex:32>"),
    row("apify-token", "apify_api_<alnum:30->"),
    row("voyage-key", "pa-<url:43>"),
    row("wandb-key", "wandb_v1_<word:40->"),
    row("modal-token", "{ak-,as-}<alnum:22>"),
    row("brave-key", "BSA<url:28>"),
    row("coze-token", "pat_<alnum:64>"),
    row("mem0-key", "m0-<alnum:40>"),
    row("valtown-token", "vtwn_<alnum:25->"),
    row("trigger-key", "{tr_dev_,tr_prod_,tr_stg_,tr_pat_}<alnum:20->"),
    row("inngest-key", "{signkey-prod-,signkey-test-,signkey-branch-}<hex:32->"),
    row("statsig-key", "{secret-,console-}<alnum:43>"),
    row("unkey-key", "unkey_<alnum:20->"),
    row("cesium-token", "ion_<alnum:36->"),
    row("nightfall-key", "NF-<alnum:32>"),
    row("wakatime-key", "waka_<hex:8>-<hex:4>-<hex:4>-<hex:4>-<hex:12>"),

    // Messages, documents and offices.
    row("slack-token", "{xoxa-,xoxb-,xoxc-,xoxe-,xoxo-,xoxp-,xoxr-,xoxs-}<dot:19->"),
    row("slack-token", "xoxe.xox{b,p}-<url:40->"),
    row("slack-token", "xoxd-<percent:60->"),
    row("slack-token", "xapp-<url:35->"),
    row("slack-token", "xwfp-<url:35->"),
    row("telegram-token", "<digit:8-10>:<url:35>"),
    row("twilio-key", "{SK,AC}<hex:32>"),
    row("sendgrid-key", "SG.<url:16-32>.<url:27-64>"),
    row("mailgun-key", "key-<alnum:32>"),
    row("mailgun-key", "pubkey-<hex:32>"),
    row("mailchimp-key", "<hex:32>-us<digit:1-2>"),
    row("mandrill-key", "md-<url:22>"),
    row("mailersend-key", "mlsn.<hex:64>"),
    row("brevo-key", "{xkeysib-,xsmtpsib-}<url:52->"),
    row("resend-key", "re_<alnum:8>_<alnum:24>"),
    row("intercom-token", "dG9rOj<base64:54>="),
    row("linear-key", "{lin_api_,lin_oauth_}<alnum:32->"),
    row("notion-token", "ntn_<alnum:36->"),
    row("notion-token", "secret_<alnum:40->"),
    row("asana-token", "{0/,1/}<digit:16>:<hex:32>"),
    row("figma-token", "{figd_,figu_,figo_}<url:25->"),
    row("airtable-token", "pat<alnum:14>.<hex:64>"),
    row("clickup-token", "pk_<digit:6-10>_<up:32->"),
    row("hubspot-token", "{pat-na1-,pat-na2-,pat-eu1-,pat-ap1-}<hex:8>-<hex:4>-<hex:4>-<hex:4>-<hex:12>"),
    row("typeform-token", "tfp_<url:36->"),
    row("contentful-token", "CFPAT-<url:34->"),
    row("frameio-token", "fio-u-<url:34->"),
    row("dropbox-token", "sl.<dot:77->"),
    row("dropbox-token", "<alnum:11>AAAAAAAAAA<url:43>"),
    row("teamwork-token", "tkn.v1_<alnum:33->"),
    row("salesforce-token", "00D<alnum:12>!<dot:44->"),
    row("workos-key", "sk_{test,live}_a2V5<base64:20->"),
    row("canva-token", "cnvca<alnum:40->"),
    row("storyblok-token", "sb_pat_<alnum:20->"),
    row("sanity-token", "sk<alnum:150->"),
    row("liveblocks-key", "{sk_prod_,sk_dev_}<url:30->"),
    row("stytch-key", "{secret-live-,secret-test-}<url:36->"),
    row("ory-token", "{ory_at_,ory_ac_,ory_rt_,ory_pat_,ory_apikey_}<dot:24->"),
    row("persona-key", "{persona_production_,persona_sandbox_}<url:30->"),
    row("zoho-token", "1000.<hex:32>.<hex:32>"),
    row("zuplo-key", "zpka_<alnum:35->"),
    row("adafruit-key", "aio_<alnum:28>"),
    row("adobe-secret", "p8e-<url:32>"),
    row("samsara-key", "samsara_api_<alnum:30>"),
    row("settlemint-token", "{sm_aat_,sm_pat_,sm_sat_}<alnum:16->"),
    row("intra42-secret", "{s-s4t2ud-,s-s4t2af-}<hex:64>"),
    row("pubnub-key", "{pub-c-,sub-c-,sec-c-}<url:34->"),
    row("blynk-client", "oa2-client-id_<url:26->"),
    row("ubidots-token", "{BBFF-,BBUS-}<alnum:25->"),
    row("mapbox-token", "{pk,sk,tk}.eyJ<dot:54->"),
    row("duffel-token", "duffel_<url:33->"),
    row("facebook-token", "EAACEdEose0cBA<alnum:16->"),
    row("facebook-token", "EAA<alnum:100->"),
    row("instagram-token", "{IGQV,IGAA}<url:56->"),
    row("linkedin-secret", "WPL_AP<digit:1>.<base64:16->"),
    row("twitter-token", "AAAAAAAAAAAAAAAAAAAAA<percent:40->"),
    row("twitch-token", "oauth:<lower:30>"),
    row("discord-token", "{MT,Mz,NT,Nz,OD,OT}<url:21-26>.<url:6>.<url:27-40>"),
    row("recaptcha-key", "6L{c,d,e,f}<url:37>"),
    row("rapidapi-key", "<hex:10>msh<hex:15>p1<hex:6>jsn<hex:12>"),
    row("mattermost-token", "mmtk_<alnum:26>"),
    row("telnyx-key", "KEY0<hex:31>_<alnum:22>"),

    // Payment, shops and logistics.
    row("stripe-key", "{rk_live_,rk_test_,sk_live_,sk_test_}<url:12->"),
    row("stripe-key", "whsec_<base64:24->"),
    row("square-token", "EAAA<url:56->"),
    row("square-token", "{sq0atp-,sq0idp-}<url:22->"),
    row("square-token", "sq0csp-<url:43->"),
    row("braintree-token", "access_token${production,sandbox}$<lower:16>$<hex:32>"),
    row("plaid-token", "{access-sandbox-,access-development-,access-production-}<hex:8>-<hex:4>-<hex:4>-<hex:4>-<hex:12>"),
    row("razorpay-key", "{rzp_live_,rzp_test_}<alnum:14->"),
    row("paddle-key", "{pdl_live_,pdl_sdbx_}<word:21->"),
    row("polar-token", "{polar_pat_,polar_oat_}<alnum:30->"),
    row("flutterwave-key", "{FLWSECK-,FLWSECK_TEST-}<alnum:22->"),
    row("gocardless-token", "{live_,sandbox_}<url:40>"),
    row("mollie-key", "{live_,test_}<alnum:30>"),
    row("lob-key", "{live_,test_}<hex:35>"),
    row("mercadopago-token", "{APP_USR-,TEST-}<digit:12-19>-<digit:6>-<hex:32>"),
    row("sumup-key", "sup_sk_<alnum:30->"),
    row("ramp-secret", "ramp_sec_<alnum:40->"),
    row("shopify-token", "{shpat_,shpca_,shppa_,shpss_,shpua_}<alnum:32->"),
    row("shippo-token", "{shippo_live_,shippo_test_}<alnum:28->"),
    row("easypost-key", "{EZAK,EZTK}<alnum:50->"),
    row("databento-key", "db-<alnum:29>"),
    row("alchemy-token", "alcht_<alnum:30>"),
    row("lightspark-key", "lightspark_<url:30->"),
    row(OWN, "pcl_<url:43->"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::FORMS;

    /// The page lists each kind with a published form, and no other.
    #[test]
    fn the_page_lists_the_kinds_of_the_table() {
        let page = include_str!("../../../../docs/content.md");
        let list = page.split("have a form that the vendor publishes:").nth(1).unwrap();
        let list = list.trim_start().split("\n\n").next().unwrap();
        let listed: BTreeSet<&str> = list.split('`').skip(1).step_by(2).collect();
        assert_eq!(listed, FORMS.iter().map(|form| form.rule).collect());
    }
}
