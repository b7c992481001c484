// Package apijson converts between the words of core/executor and the bodies of the HTTP API, which are the structs of sdk/go.
// The HTTP frontend and the CLI write what it returns; the CLI's remote Service reads with it.
//
// XOf returns the API's form of an executor.X, and ToX returns the executor.X of the API's form. The package reads and writes
// no stream and knows no engine and no protocol.
//
// In the API's JSON every member is there, and an unknown one is null (see the tag nullable in sdk/go). An internal failure
// says only that it is internal. The vectors in testdata/wire hold both directions to this.
package apijson
