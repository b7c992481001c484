// Package pyexec is the Go client of python-executor's HTTP API. It needs the standard library only.
//
//	client, err := pyexec.NewClient("http://127.0.0.1:8080")
//	…
//	e, err := client.Run(ctx, pyexec.Spec{Code: "print(6 * 7)"}, pyexec.Input{})
//	fmt.Print(e.Stdout) // 42
//
// A program that fails is not an error: Execution.Status and ExitCode say how it ended. An error is an *Error wherever
// the server or the network is its cause; its Code says what kind.
//
// A Session keeps an interpreter and its files between executions: OpenSession, RunInSession (or Spec.SessionID with Run,
// Submit and RunStream), UploadFile, DownloadFile, CloseSession. What code displays, plots and tables among it, is in
// Execution.Displays and comes as Display events.
//
// Nothing is retried that could run a program twice: GET requests, Cancel, what is safe to repeat on a Session and its
// files, and Submit with an idempotency key are, with growing, jittered pauses, a bounded number of times, each visible to
// the hook of WithRetryHook. Events resumes by itself where a broken connection left off.
//
// The client tolerates servers that are newer than itself: an event it does not know is an UnknownEvent, a status it does
// not know is kept as it is, an unknown field is ignored.
package pyexec
