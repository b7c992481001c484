// Package remote implements executor.Service with sdk/go, so that a server looks like the engine of this process.
//
// It keeps no state. The SDK retries and resumes event streams. Fields that the HTTP API does not have stay zero: Owner, Spec and
// LastSeq of an Execution, and the Time of an Event.
//
// One flow: Submit converts a Spec to the metadata of the API (frontends/http/apijson) and streams the Workspace. Events yields the
// Events of the server's log. Errors are *executor.Error.
package remote
