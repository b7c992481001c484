// Package auth turns a bearer token into a Principal.
//
// It knows tokens by their SHA-256 only, compares in constant time over all of them, and never logs. It decides who asks,
// not what they may do: scopes are enforced by the Engine (and by a frontend for what is its own, such as metrics).
//
// One flow: the CLI builds an Authenticator from the configuration's http.tokens; the HTTP frontend hands it each
// request's Authorization header and puts the Principal into the request's ctx.
package auth
