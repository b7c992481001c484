// Package auth turns a bearer token into a Principal.
//
// The package knows only the SHA-256 of each token, compares all of them in constant time, and never logs. It determines the
// caller, not the caller's rights. The Engine enforces the scopes, and a frontend those of its own routes, such as metrics.
//
// One flow: the CLI builds an Authenticator from the configuration's http.tokens. The HTTP frontend passes it the
// Authorization header of each request and puts the Principal into the request's ctx.
package auth
