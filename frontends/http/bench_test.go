package httpfrontend

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// BenchmarkSync is what the frontend adds to a sync call, network included: the Service answers at once.
func BenchmarkSync(b *testing.B) {
	f, err := newFrontend(hello().service(), Options{SpoolDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(f)
	defer server.Close()
	multi, contentType := form(part{"metadata", "{}", nil}, part{"tar", string(tarOf("main.py", "print(1)")), nil})
	for name, req := range map[string]struct {
		body        []byte
		contentType string
	}{
		"json":      {[]byte(`{"code":"print(1)"}`), "application/json"},
		"multipart": {multi, contentType},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				res, err := server.Client().Post(server.URL+"/api/v1/exec/sync", req.contentType, bytes.NewReader(req.body))
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if res.StatusCode != http.StatusOK {
					b.Fatal(res.Status)
				}
			}
		})
	}
}

// BenchmarkResult writes results of one MiB of output each.
func BenchmarkResult(b *testing.B) {
	f, err := newFrontend(hello().service(), Options{SpoolDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	for name, line := range map[string]string{"text": "a line of output, as programs write them\n", "binary": "\xff\x00\x01\xfe"} {
		b.Run(name, func(b *testing.B) {
			data := bytes.Repeat([]byte(line), executor.MaxOutputData/len(line))
			r := newRun().add(executor.Started{}, executor.Output{Stream: executor.Stdout, Data: data}, executor.Output{Stream: executor.Stdout, Data: data}, executor.Output{Stream: executor.Stdout, Data: data}, executor.Output{Stream: executor.Stdout, Data: data}, done(0))
			f.svc = r.service()
			b.SetBytes(int64(4 * len(data)))
			for b.Loop() {
				if err := f.writeResult(httptest.NewRecorder(), r.state(), f.loggedOutput(b.Context(), r.state())); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
