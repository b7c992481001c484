// Package pyexec is the Go client of python-executor's HTTP API. It needs the standard library only.
//
//	client, err := pyexec.NewClient("http://127.0.0.1:8080")
//	…
//	e, err := client.Run(ctx, pyexec.Spec{Code: "print(6 * 7)"}, pyexec.Input{})
//	fmt.Print(e.Stdout) // 42
//
// A program that fails is not an error: Execution.Status and ExitCode tell how it ended. Errors of the server and of the network
// are *Error. Its Code tells the kind of error.
//
// A Session keeps an interpreter and its files between executions: OpenSession, RunInSession (or Spec.SessionID with Run, Submit
// and RunStream), UploadFile, DownloadFile, CloseSession. Values that code displays, such as plots and tables, are in
// Execution.Displays and in Display events.
//
// The client retries a call only if that cannot run a program twice: GET requests, Cancel, idempotent calls on a Session and its
// files, and Run and Submit, which send an idempotency key. The number of attempts is bounded, the pauses grow and are jittered, and the
// hook of WithRetryHook sees each retry. Events resumes after a broken connection.
//
// Input.Folder sends a folder by the rules of the CLI (package pack), SaveArtifacts writes artifacts to a folder, and
// UploadProgress reports how much of an upload is sent. NewClientFromEnv takes the server and the token from the environment.
//
// The client works with newer servers: an unknown event is an UnknownEvent, an unknown status is kept, and an unknown field is
// ignored. The structs of the API's bodies are also the server's; their tags describe the API.
package pyexec
