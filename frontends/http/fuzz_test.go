package httpfrontend

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// FuzzMultipart sends any body: it is accepted or refused, never a panic or an internal error, and what is accepted
// gives its tar and stdin.
func FuzzMultipart(f *testing.F) {
	archive := string(tarOf("main.py", "x"))
	for _, parts := range [][]part{
		{{"metadata", "{}", nil}, {"tar", archive, nil}},
		{{"tar", archive, nil}, {"metadata", `{"code":"x"}`, nil}, {"stdin", "in", nil}},
		{{"metadata", "{}", nil}, {"tar", archive + string(make([]byte, tarAhead)), nil}, {"stdin", "in", nil}},
		{{"metadata", "{}", nil}, {"tar", archive + string(make([]byte, tarAhead)), nil}, {"other", "in", nil}},
	} {
		body, contentType := form(parts...)
		f.Add(body, contentType)
	}
	f.Add([]byte("--b\r\nContent-Disposition: form-data; name=tar\r\n\r\n\r\n--b--"), "multipart/form-data; boundary=b")
	svc := hello().service()
	svc.submit = func(_ context.Context, _ executor.Spec, in executor.Input) (executor.Execution, error) {
		if err := consume(in); err != nil {
			return executor.Execution{}, err
		}
		return hello().state(), nil
	}
	h, err := newFrontend(svc, Options{SpoolDir: f.TempDir(), MaxBodyBytes: 1 << 20})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/api/v1/exec/sync", io.NopCloser(bytes.NewReader(body)))
		if err != nil {
			t.Skip()
		}
		req.Header.Set("Content-Type", contentType)
		w := record(h, req)
		switch w.Code {
		case 200, 400, 413, 415, 422:
		default:
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	})
}
