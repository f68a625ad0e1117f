// An authorization server of npm's certified oidc-provider: `oidc_provider.mjs PACKAGE ENVIRONMENT`, of which the second
// is JSON: `seconds` (lifetimes of access tokens, by resource), `redirectUris` (of the gateway as a client), `trusted` (an identity
// provider, whose assertions are exchanged). It prints its URL, and serves until its standard input ends.
//
// Logins have no forms: the header `x-person` of the browser names who logs in. `/events` lists what has happened.
import http from "node:http";
import { createPublicKey, generateKeyPairSync, randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, environment] = process.argv.slice(2);
const { seconds = {}, redirectUris = ["https://gateway.example.com/callback"], trusted = null } = JSON.parse(environment ?? "{}");
const { default: Provider, errors } = await import(pathToFileURL(`${folder}/lib/index.js`).href);
const jose = await import(pathToFileURL(createRequire(`${folder}/lib/index.js`).resolve("jose")).href);

const EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token";
const ID_JAG = "urn:ietf:params:oauth:token-type:id-jag";
const key = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
const jwk = { ...key.export({ format: "jwk" }), kid: "one", use: "sig", alg: "ES256" };
const events = [];

const server = http.createServer();
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;

const about = (resource) => ({
  audience: resource,
  scope: "read write",
  accessTokenFormat: "jwt",
  accessTokenTTL: seconds[resource] ?? 3600,
  jwt: { sign: { alg: "ES256" } },
});
const provider = new Provider(issuer, {
  jwks: { keys: [jwk] },
  clients: [
    {
      client_id: "gateway",
      client_secret: "secret-of-the-gateway",
      redirect_uris: redirectUris,
      grant_types: ["authorization_code", "refresh_token", EXCHANGE, JWT_BEARER],
      token_endpoint_auth_method: "client_secret_basic",
    },
    {
      client_id: "program",
      redirect_uris: ["http://127.0.0.1/callback"],
      application_type: "native",
      token_endpoint_auth_method: "none",
    },
  ],
  clientDefaults: { id_token_signed_response_alg: "ES256" },
  pkce: { required: () => true },
  scopes: ["openid", "offline_access", "read", "write"],
  issueRefreshToken: async () => true,
  findAccount: async (_, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, resource) => about(resource),
    },
  },
  renderError: (ctx, out) => (ctx.body = JSON.stringify(out)),
});

const note = (name) => (ctx, ...rest) => {
  const { params = {}, client } = ctx?.oidc ?? {};
  const error = rest.find((each) => each instanceof Error);
  events.push({
    name,
    client: client?.clientId,
    grant: params.grant_type,
    resource: params.resource,
    error: error && `${error.message}: ${error.error_description}`,
  });
};
for (const name of ["grant.success", "grant.error", "authorization.success", "authorization.error"]) {
  provider.on(name, note(name));
}
provider.on("registration_create.success", note("registration_create.success"));
provider.on("server_error", note("server_error"));
provider.on("refresh_token.destroyed", () => events.push({ name: "refresh_token.destroyed" }));
provider.on("grant.revoked", () => events.push({ name: "grant.revoked" }));

const tokenFor = async (ctx, subject, resource, scope) => {
  const { AccessToken, Grant, ResourceServer } = provider;
  const { client } = ctx.oidc;
  const grant = new Grant({ accountId: subject, clientId: client.clientId });
  grant.addResourceScope(resource, scope);
  const token = new AccessToken({ accountId: subject, client, grantId: await grant.save(), gty: "exchange" });
  token.resourceServer = new ResourceServer(resource, about(resource));
  token.scope = scope;
  ctx.oidc.entity("AccessToken", token);
  return { access_token: await token.save(), token_type: "Bearer", expires_in: token.expiration, scope };
};

// RFC 8693: the subject's access token for one of another audience, or for an ID-JAG.
provider.registerGrantType(
  EXCHANGE,
  async (ctx) => {
    const { params, client } = ctx.oidc;
    if (params.subject_token_type !== ACCESS_TOKEN) throw new errors.InvalidRequest("subject_token_type");
    let subject;
    try {
      const keys = jose.createLocalJWKSet({ keys: [{ ...createPublicKey(key).export({ format: "jwk" }), kid: "one" }] });
      subject = (await jose.jwtVerify(params.subject_token, keys, { issuer, typ: "at+jwt" })).payload;
    } catch (error) {
      throw new errors.InvalidGrant(`subject_token: ${error.message}`);
    }
    if (params.requested_token_type === ID_JAG) {
      const claims = { client_id: client.clientId, resource: params.resource, scope: "read", jti: randomUUID() };
      const assertion = new jose.SignJWT(claims)
        .setProtectedHeader({ alg: "ES256", kid: "one", typ: "oauth-id-jag+jwt" })
        .setIssuer(issuer)
        .setSubject(subject.sub)
        .setAudience(params.audience)
        .setIssuedAt()
        .setExpirationTime("5m");
      ctx.body = { access_token: await assertion.sign(key), issued_token_type: ID_JAG, token_type: "N_A" };
      return;
    }
    const target = params.resource ?? params.audience;
    ctx.body = { ...(await tokenFor(ctx, subject.sub, target, "read")), issued_token_type: ACCESS_TOKEN };
  },
  ["subject_token", "subject_token_type", "requested_token_type", "audience", "resource", "scope"],
);

// RFC 7523: the assertion of a trusted identity provider for an access token.
provider.registerGrantType(
  JWT_BEARER,
  async (ctx) => {
    const { params, client } = ctx.oidc;
    let claims;
    try {
      const keys = jose.createRemoteJWKSet(new URL(`${trusted}/jwks`));
      const expected = { issuer: trusted, audience: issuer, typ: "oauth-id-jag+jwt" };
      claims = (await jose.jwtVerify(params.assertion, keys, expected)).payload;
    } catch (error) {
      throw new errors.InvalidGrant(`assertion: ${error.message}`);
    }
    if (claims.client_id !== client.clientId) throw new errors.InvalidGrant("client_id of the assertion");
    if (claims.resource !== params.resource) throw new errors.InvalidTarget();
    ctx.body = await tokenFor(ctx, claims.sub, claims.resource, claims.scope);
  },
  ["assertion", "resource", "scope"],
);

const interact = async (request, response) => {
  const { prompt, params, session, grantId } = await provider.interactionDetails(request, response);
  if (prompt.name === "login") {
    const accountId = request.headers["x-person"];
    return provider.interactionFinished(request, response, { login: { accountId } });
  }
  const grant =
    (grantId && (await provider.Grant.find(grantId))) ??
    new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope = [], missingResourceScopes = {} } = prompt.details;
  grant.addOIDCScope(missingOIDCScope.join(" "));
  for (const [resource, scopes] of Object.entries(missingResourceScopes)) {
    grant.addResourceScope(resource, scopes.join(" "));
  }
  const consent = { grantId: await grant.save() };
  return provider.interactionFinished(request, response, { consent }, { mergeWithLastSubmission: true });
};

server.on("request", (request, response) => {
  if (request.url === "/events") return response.end(JSON.stringify(events));
  if (request.url.startsWith("/interaction/")) {
    return interact(request, response).catch((error) => response.writeHead(500).end(String(error)));
  }
  return provider.callback()(request, response);
});
process.stdin.resume().on("end", () => process.exit(0));
console.error(`listening at ${issuer}`);
