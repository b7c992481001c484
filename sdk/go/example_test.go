package pyexec_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing/fstest"
	"time"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// pretend stands for a server, so that the examples run without one.
func pretend() *httptest.Server {
	mux := http.NewServeMux()
	reply := func(w http.ResponseWriter, contentType, body string) {
		w.Header().Set("Content-Type", contentType)
		if _, err := io.WriteString(w, body); err != nil {
			log.Print(err)
		}
	}
	mux.HandleFunc("POST /api/v1/exec/sync", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			log.Print(err)
		}
		switch {
		case bytes.Contains(body, []byte("rows = ")):
			reply(w, "application/json", `{"execution_id":"exe_1","session_id":"ctx-1","status":"succeeded","exit_code":0,"stdout":"","displays":[]}`)
		case bytes.Contains(body, []byte("sum(map")):
			reply(w, "application/json", `{"execution_id":"exe_2","session_id":"ctx-1","status":"succeeded","exit_code":0,"stdout":"","displays":[{"mime":"text/plain","data":"10","value":true,"display":0}]}`)
		case bytes.Contains(body, []byte("exit(3)")):
			reply(w, "application/json", `{"execution_id":"exe_1","status":"failed","exit_code":3,"stdout":"","stderr":"no luck\n"}`)
		case bytes.Contains(body, []byte("no-such-package")):
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			reply(w, "application/problem+json", `{"code":"invalid","detail":"config.memory_mb: must be more than 0","errors":[{"field":"config.memory_mb","message":"must be more than 0"}]}`)
		default:
			reply(w, "application/json", `{"execution_id":"exe_1","status":"succeeded","exit_code":0,"stdout":"42\n","artifacts":[{"path":"out.txt","size_bytes":3}]}`)
		}
	})
	mux.HandleFunc("POST /api/v1/exec/async", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		reply(w, "application/json", `{"execution_id":"exe_1"}`)
	})
	mux.HandleFunc("GET /api/v1/executions/{id}/events", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, "text/event-stream", "id: 1\nevent: queued\ndata: {\"position\":0}\n\n"+
			"id: 2\nevent: output\ndata: {\"stream\":\"stdout\",\"offset\":0,\"data\":\"working\\n\"}\n\n"+
			"id: 3\nevent: finished\ndata: {\"execution_id\":\"exe_1\",\"status\":\"succeeded\",\"exit_code\":0}\n\n")
	})
	mux.HandleFunc("GET /api/v1/executions/{id}", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, "application/json", `{"execution_id":"exe_1","status":"succeeded","exit_code":0,"stdout":"working\n","artifacts":[{"path":"out.txt","size_bytes":3}]}`)
	})
	mux.HandleFunc("GET /api/v1/executions/{id}/artifacts", func(w http.ResponseWriter, _ *http.Request) {
		a := tar.NewWriter(w)
		if err := errors.Join(a.AddFS(fstest.MapFS{"out.txt": {Data: []byte("42\n")}}), a.Close()); err != nil {
			log.Print(err)
		}
	})
	mux.HandleFunc("GET /api/v1/executions/{id}/artifacts/{path...}", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, "application/octet-stream", "42\n")
	})
	mux.HandleFunc("GET /api/v1/executions", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, "application/json", `{"executions":[{"execution_id":"exe_2","status":"running"},{"execution_id":"exe_1","status":"succeeded"}],"next":null}`)
	})
	mux.HandleFunc("POST /api/v1/sessions", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		reply(w, "application/json", `{"session_id":"ctx-1","status":"active","language":"python"}`)
	})
	mux.HandleFunc("DELETE /api/v1/sessions/{id}", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, "application/json", `{"status":"closed"}`)
	})
	mux.HandleFunc("PUT /api/v1/sessions/{id}/files/{path...}", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			log.Print(err)
		}
		reply(w, "application/json", `{"path":"`+r.PathValue("path")+`","size_bytes":8}`)
	})
	mux.HandleFunc("GET /api/v1/sessions/{id}/files/{path...}", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, "application/octet-stream", "1,2\n3,4\n")
	})
	return httptest.NewServer(mux)
}

func connect() (*pyexec.Client, func()) {
	server := pretend()
	client, err := pyexec.NewClient(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	return client, func() {
		client.CloseIdleConnections()
		server.Close()
	}
}

func Example() {
	client, stop := connect() // pyexec.NewClient("http://127.0.0.1:8080")
	defer stop()
	e, err := client.Run(context.Background(), pyexec.Spec{Code: "print(6 * 7)"}, pyexec.Input{})
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Print(e.Stdout)
	// Output: 42
}

// A failed program is a status, not an error.
func ExampleClient_Run() {
	client, stop := connect()
	defer stop()
	e, err := client.Run(context.Background(), pyexec.Spec{
		Code:   "import sys; sys.stderr.write('no luck\\n'); exit(3)",
		Config: pyexec.Config{TimeoutSeconds: new(10.0), MemoryMB: 256},
	}, pyexec.Input{})
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println(e.Status, *e.ExitCode, strings.TrimSpace(e.Stderr))
	// Output: failed 3 no luck
}

// Files that are on no disk go as a tar, folders as Input.Folder. What the program makes comes back as artifacts.
func ExampleClient_Artifact() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()
	folder := fstest.MapFS{ // os.DirFS("project")
		"main.py":  {Data: []byte("open('out.txt', 'w').write(open('data.txt').read())")},
		"data.txt": {Data: []byte("42\n")},
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(w.AddFS(folder), w.Close()); err != nil {
		log.Print(err)
		return
	}
	e, err := client.Run(ctx, pyexec.Spec{Outputs: []string{"*.txt"}}, pyexec.Input{Tar: &archive})
	if err != nil {
		log.Print(err)
		return
	}
	for _, a := range e.Artifacts {
		content, err := client.Artifact(ctx, e.ExecutionID, a.Path)
		if err != nil {
			log.Print(err)
			return
		}
		_, copyErr := io.Copy(os.Stdout, content)
		if err := errors.Join(copyErr, content.Close()); err != nil {
			log.Print(err)
		}
	}
	// Output: 42
}

// RunStream shows output while the program runs.
func ExampleClient_RunStream() {
	client, stop := connect()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := client.RunStream(ctx, pyexec.Spec{Code: "print('working')"}, pyexec.Input{}, func(e pyexec.Event) error {
		switch b := e.Body.(type) {
		case pyexec.Output:
			_, err := os.Stdout.Write(b.Data)
			return err
		case pyexec.Finished:
			fmt.Println(b.Execution.Status)
		}
		return nil
	})
	if err != nil {
		log.Print(err)
	}
	// Output:
	// working
	// succeeded
}

// Submit returns an id; Events follows it, from anywhere and as often as one likes.
func ExampleClient_Events() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()
	id, err := client.Submit(ctx, pyexec.Spec{Code: "print('working')", IdempotencyKey: "job-17"}, pyexec.Input{})
	if err != nil {
		log.Print(err)
		return
	}
	for e, err := range client.Events(ctx, id, 0) {
		if err != nil {
			log.Print(err)
			return
		}
		fmt.Println(e.Seq, e.Body.Kind())
	}
	// Output:
	// 1 queued
	// 2 output
	// 3 finished
}

func ExampleClient_List() {
	client, stop := connect()
	defer stop()
	for e, err := range client.List(context.Background(), pyexec.ListOptions{}) {
		if err != nil {
			log.Print(err)
			return
		}
		fmt.Println(e.ExecutionID, e.Status)
	}
	// Output:
	// exe_2 running
	// exe_1 succeeded
}

// A session keeps names and files between executions; the value of the last expression comes back as a display.
func ExampleClient_RunInSession() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()
	s, err := client.OpenSession(ctx, pyexec.SessionSpec{})
	if err != nil {
		log.Print(err)
		return
	}
	defer func() {
		if _, err := client.CloseSession(ctx, s.SessionID); err != nil {
			log.Print(err)
		}
	}()
	for _, code := range []string{"rows = [[1, 2], [3, 4]]", "sum(map(sum, rows))"} {
		e, err := client.RunInSession(ctx, s.SessionID, code)
		if err != nil {
			log.Print(err)
			return
		}
		for _, d := range e.Displays {
			fmt.Printf("%s %s\n", d.MIME, d.Data)
		}
	}
	// Output: text/plain 10
}

// Files go into a session and out of it as streams.
func ExampleClient_UploadFile() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()
	f, err := client.UploadFile(ctx, "ctx-1", "data/rows.csv", strings.NewReader("1,2\n3,4\n"))
	if err != nil {
		log.Print(err)
		return
	}
	_, content, err := client.DownloadFile(ctx, "ctx-1", f.Path)
	if err != nil {
		log.Print(err)
		return
	}
	_, copyErr := io.Copy(os.Stdout, content)
	if err := errors.Join(copyErr, content.Close()); err != nil {
		log.Print(err)
	}
	// Output:
	// 1,2
	// 3,4
}

// An error says of what kind it is and which fields are wrong.
func ExampleError() {
	client, stop := connect()
	defer stop()
	_, err := client.Run(context.Background(), pyexec.Spec{Code: "1", RequirementsTxt: "no-such-package"}, pyexec.Input{})
	if e, ok := errors.AsType[*pyexec.Error](err); ok {
		fmt.Println(e.Code, e.Fields[0].Field)
	}
	// Output: invalid config.memory_mb
}
