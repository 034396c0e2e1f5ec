// A real OAuth authorization server for the tests, over HTTPS on 127.0.0.1. It approves everything at once.
// Environment: TLS_CERT and TLS_KEY (PEM files), and if wanted TLS_CLIENT_CA (PEM file), HOST_NAME, ACCESS_TTL
// (seconds), GATEWAY_JWK (public key of the client `gateway`). Prints its issuer and port as a line of JSON, and
// lives as long as its stdin is open.
import crypto from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The packages are where tests/setup puts them, not beside this file.
const { resolve } = createRequire(new URL("../.peers/oauth/", import.meta.url));
const load = (name) => import(pathToFileURL(resolve(name)));

// stdout is for our one line, and the library writes its notices there.
console.info = console.error;
// The one thing Node 20 lacks of what the library uses.
URL.parse ??= (url, base) => (URL.canParse(url, base) ? new URL(url, base) : null);
const { Provider, errors } = await load("oidc-provider");
const { createMemoryAdapter } = await load("oidc-provider/lib/adapters/memory_adapter.js");
const { createLocalJWKSet, jwtVerify } = await load("jose");
const { InvalidGrant, InvalidRequest, InvalidTarget } = errors;

const env = process.env;
const TTL = Number(env.ACCESS_TTL ?? 300);
const DAY = 86400;
const SCOPES = "files:read files:write mcp admin";
const GROUPS = { alice: ["dev"], bob: ["ops"] };
const EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token";
const JWT = "urn:ietf:params:oauth:token-type:jwt";
const ID_JAG = "urn:ietf:params:oauth:token-type:id-jag";

const now = () => Math.floor(Date.now() / 1000);
const absent = (value) => value === undefined || value === null;
const known = (scope) => (scope ?? "").split(" ").filter((one) => SCOPES.split(" ").includes(one)).join(" ");
const groups = (sub) => (Object.hasOwn(GROUPS, sub) ? { groups: GROUPS[sub] } : {});

// Keys. The first ES256 key signs access tokens; the RS256 key signs ID tokens and is never rotated.
function newKey(alg) {
  const { privateKey } =
    alg === "ES256"
      ? crypto.generateKeyPairSync("ec", { namedCurve: "P-256" })
      : crypto.generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { ...privateKey.export({ format: "jwk" }), alg, use: "sig", kid: crypto.randomUUID() };
}
let keys = [newKey("ES256"), newKey("RS256")];
const keyOf = (alg) => keys.find((key) => key.alg === alg);

// By hand and not with jose, so that a test may ask for a header that no library would write.
// Null takes a member away from the header or the claims.
function sign(header, claims) {
  const key = keyOf(header.alg === "RS256" ? "RS256" : "ES256");
  const part = (object) =>
    Buffer.from(JSON.stringify(object, (_, value) => value ?? undefined)).toString("base64url");
  const text = `${part({ alg: key.alg, kid: key.kid, ...header })}.${part(claims)}`;
  if (header.alg === "none") return `${text}.`;
  const secret = crypto.createPrivateKey({ key, format: "jwk" });
  const signature = crypto.sign("sha256", Buffer.from(text), { key: secret, dsaEncoding: "ieee-p1363" });
  return `${text}.${signature.toString("base64url")}`;
}

function mint(claims, ttl = TTL, header = {}) {
  const times = { iat: now(), exp: now() + ttl, jti: crypto.randomUUID() };
  return sign({ typ: "at+jwt", ...header }, { iss: issuer, ...times, ...groups(claims.sub), ...claims });
}

// A JWT of ours: by any key that is still published.
async function verify(token, typ, Refusal) {
  const published = keys.map(({ kty, crv, x, y, n, e, alg, kid }) => ({ kty, crv, x, y, n, e, alg, kid }));
  const rules = { issuer, typ, requiredClaims: ["sub", "exp", "jti"] };
  return jwtVerify(token ?? "", createLocalJWKSet({ keys: published }), rules).then(
    ({ payload }) => payload,
    (error) => {
      throw new Refusal(`not a valid ${typ} of this issuer: ${error.message}`);
    },
  );
}

function isResource(uri) {
  return /^https?:\/\//.test(uri) && URL.canParse(uri);
}

// RFC 8693. The requested type may be an identity assertion (ID-JAG) in place of an access token.
async function exchange(ctx) {
  const { params, client } = ctx.oidc;
  const read = (token, type, name) => {
    if (![ACCESS_TOKEN, JWT].includes(type)) throw new InvalidRequest(`unsupported ${name}_token_type`);
    return verify(token, "at+jwt", InvalidRequest);
  };
  const subject = await read(params.subject_token, params.subject_token_type, "subject");
  const actor = absent(params.actor_token)
    ? { sub: client.clientId }
    : await read(params.actor_token, params.actor_token_type, "actor");
  const scope = known(params.scope ?? subject.scope) || undefined;
  if (!absent(params.resource) && !isResource(params.resource)) throw new InvalidTarget();
  if (params.requested_token_type === ID_JAG) {
    const claims = { sub: subject.sub, client_id: client.clientId, scope, resource: params.resource };
    ctx.body = {
      access_token: mint({ ...claims, aud: params.audience ?? issuer }, TTL, { typ: "oauth-id-jag+jwt" }),
      issued_token_type: ID_JAG,
      token_type: "N_A",
      expires_in: TTL,
      scope,
    };
    return;
  }
  if (![undefined, ACCESS_TOKEN, JWT].includes(params.requested_token_type)) {
    throw new InvalidRequest("unsupported requested_token_type");
  }
  const aud = params.resource ?? params.audience;
  if (absent(aud)) throw new InvalidTarget("resource or audience is missing");
  // Whoever acted before stays in the chain.
  const act = { sub: actor.sub, act: subject.act };
  ctx.body = {
    access_token: mint({ sub: subject.sub, aud, client_id: client.clientId, scope, act }),
    issued_token_type: ACCESS_TOKEN,
    token_type: "Bearer",
    expires_in: TTL,
    scope,
  };
}

// RFC 7523 with an ID-JAG as the assertion.
const spent = new Set();
async function bearer(ctx) {
  const { params, client } = ctx.oidc;
  const grant = await verify(params.assertion, "oauth-id-jag+jwt", InvalidGrant);
  if (grant.aud !== issuer) throw new InvalidGrant("the assertion is for another server");
  if (grant.client_id !== client.clientId) throw new InvalidGrant("the assertion is for another client");
  if (!isResource(grant.resource)) throw new InvalidGrant("the assertion names no resource");
  if (spent.has(grant.jti)) throw new InvalidGrant("the assertion was used before");
  spent.add(grant.jti);
  const given = (grant.scope ?? "").split(" ");
  const asked = known(params.scope ?? grant.scope).split(" ");
  const scope = asked.filter((one) => given.includes(one)).join(" ") || undefined;
  ctx.body = {
    access_token: mint({ sub: grant.sub, aud: grant.resource, client_id: client.clientId, scope }),
    token_type: "Bearer",
    expires_in: TTL,
    scope,
  };
}

const machine = { redirect_uris: [], response_types: [], grant_types: ["client_credentials"] };
const delegate = { ...machine, grant_types: ["client_credentials", EXCHANGE, JWT_BEARER] };
const clients = [
  {
    client_id: "public",
    application_type: "native", // any port on loopback
    token_endpoint_auth_method: "none",
    redirect_uris: ["http://127.0.0.1/callback"],
    grant_types: ["authorization_code", "refresh_token"],
  },
  { ...delegate, client_id: "gateway-secret", client_secret: "gateway-secret-0123456789" },
  {
    ...machine,
    client_id: "mtls",
    client_secret: "mtls-secret-0123456789",
    tls_client_certificate_bound_access_tokens: true,
  },
  {
    ...machine,
    client_id: "dpop",
    client_secret: "dpop-secret-0123456789",
    token_endpoint_auth_method: "client_secret_post",
    dpop_bound_access_tokens: true,
  },
];
if (env.GATEWAY_JWK) {
  clients.push({
    ...delegate,
    client_id: "gateway",
    token_endpoint_auth_method: "private_key_jwt",
    token_endpoint_auth_signing_alg: "ES256",
    jwks: { keys: [JSON.parse(env.GATEWAY_JWK)] },
  });
}

function getResourceServerInfo(_, resource) {
  if (!isResource(resource)) throw new InvalidTarget();
  const opaque = new URL(resource).pathname.endsWith("/opaque");
  return {
    scope: SCOPES,
    audience: resource,
    accessTokenFormat: opaque ? "opaque" : "jwt",
    jwt: { sign: { alg: "ES256", kid: keyOf("ES256").kid } },
  };
}

const configuration = {
  // One for all providers: what was issued outlives a rotation.
  adapter: createMemoryAdapter(),
  clients,
  cookies: { keys: [crypto.randomUUID()] },
  extraTokenClaims: (_, token) => groups(token.accountId),
  findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub, ...groups(sub) }) }),
  issueRefreshToken: (_, client) => client.grantTypeAllowed("refresh_token"),
  pkce: { required: () => true },
  // With those of the resources, for clients that register or discover them.
  scopes: ["openid", "offline_access", ...SCOPES.split(" ")],
  ttl: {
    AccessToken: TTL,
    ClientCredentials: TTL,
    IdToken: TTL,
    Grant: DAY,
    Interaction: DAY,
    RefreshToken: DAY,
    Session: DAY,
  },
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: false },
    dPoP: { enabled: true },
    introspection: { enabled: true, allowedPolicy: (_, client) => client.clientId === "gateway-secret" },
    mTLS: {
      enabled: true,
      certificateBoundAccessTokens: true,
      getCertificate: (ctx) => ctx.socket.getPeerX509Certificate(),
    },
    registration: { enabled: true },
    resourceIndicators: { enabled: true, getResourceServerInfo, useGrantedResource: () => true },
    revocation: { enabled: true },
  },
};

let issuer;
let provider;
let handle;

// The library's keys are fixed at its start, so that new keys mean a new provider.
function start() {
  provider = new Provider(issuer, { ...configuration, jwks: { keys } });
  const common = ["scope", "resource"];
  const tokens = ["subject_token", "subject_token_type", "actor_token", "actor_token_type", "requested_token_type"];
  provider.registerGrantType(EXCHANGE, exchange, [...common, ...tokens, "audience"]);
  provider.registerGrantType(JWT_BEARER, bearer, [...common, "assertion"]);
  provider.on("server_error", (_, error) => console.error(error));
  handle = provider.callback();
}

// The user's part of an authorization: logs in whom the client hints at, and grants everything asked for.
async function approve(req, res) {
  const { params } = await provider.interactionDetails(req, res);
  const accountId = params.login_hint ?? "alice";
  const grant = new provider.Grant({ accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope ?? "");
  for (const resource of [params.resource ?? []].flat()) grant.addResourceScope(resource, known(params.scope));
  const result = { login: { accountId }, consent: { grantId: await grant.save() } };
  await provider.interactionFinished(req, res, result, { mergeWithLastSubmission: false });
}

// A token at once, for tests that are not about how to get one.
async function token(query) {
  const { sub = "alice", client = "public", resource, scope, ttl = TTL } = query;
  const object = (name) => JSON.parse(query[name] ?? "{}");
  if (resource && getResourceServerInfo(null, resource).accessTokenFormat === "opaque") {
    const fields = { accountId: sub, client: await provider.Client.find(client), scope, expiresIn: Number(ttl) };
    const resourceServer = new provider.ResourceServer(resource, getResourceServerInfo(null, resource));
    return new provider.AccessToken({ ...fields, resourceServer }).save();
  }
  const claims = { sub, aud: resource, client_id: client, scope };
  if (query.cnf) claims.cnf = object("cnf");
  return mint({ ...claims, ...object("claims") }, Number(ttl), object("header"));
}

function rotate(query) {
  const kept = keys.filter((key) => key.alg === "RS256" || query.drop !== "1");
  keys = [newKey("ES256"), ...kept];
  start();
  return JSON.stringify({ kid: keys[0].kid });
}

const stats = { jwks: 0, token: 0, introspection: 0 };
const counted = { "GET /jwks": "jwks", "POST /token": "token", "POST /token/introspection": "introspection" };
const tools = { "GET /test/token": token, "POST /test/rotate": rotate, "GET /test/stats": () => JSON.stringify(stats) };

async function serve(req, res) {
  const { pathname, searchParams } = new URL(req.url, issuer);
  const route = `${req.method} ${pathname}`;
  if (route in counted) stats[counted[route]] += 1;
  if (route in tools) return res.end(await tools[route](Object.fromEntries(searchParams)));
  if (pathname.startsWith("/interaction/")) return approve(req, res);
  // Every authorization starts without a session, so that one cookie jar serves alice and bob in turn.
  if (/^\/auth(\/|$)/.test(pathname)) {
    req.headers.cookie = req.headers.cookie?.replace(/\b_session(\.sig)?=[^;]*(; *|$)/g, "") ?? "";
  }
  return handle(req, res);
}

const file = (path) => path && readFileSync(path);
const pem = { cert: file(env.TLS_CERT), key: file(env.TLS_KEY), ca: file(env.TLS_CLIENT_CA) };
// Any client certificate will do, and none at all: it only binds tokens.
const server = createServer({ ...pem, requestCert: true, rejectUnauthorized: false }, (req, res) =>
  serve(req, res).catch((error) => res.writeHead(error.statusCode ?? 500).end(`${error}`)),
);
server.listen(0, "127.0.0.1", () => {
  const { port } = server.address();
  issuer = `https://${env.HOST_NAME ?? "localhost"}:${port}`;
  start();
  console.log(JSON.stringify({ issuer, port }));
});
const exit = () => process.exit();
process.stdin.resume().on("end", exit).on("close", exit);
