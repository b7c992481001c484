package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"regexp"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// http METHOD URL [BODY | NAME=TEXT | NAME=@FILE ...]: the request's answer goes to stdout: its status, its Content-Type and its body. BODY is
// JSON, the others are parts of a form. The variable PYEXEC_TOKEN is sent as the token. EXECUTION_ID is set if the answer begins with one.
func httpRequest(ts *testscript.TestScript, _ bool, args []string) {
	var body bytes.Buffer
	mediaType := "application/json"
	form := multipart.NewWriter(&body)
	for _, arg := range args[2:] {
		name, value, isPart := strings.Cut(arg, "=")
		if !isPart || strings.ContainsAny(name, "{[") {
			body.WriteString(arg)
			continue
		}
		mediaType = form.FormDataContentType()
		file, isFile := strings.CutPrefix(value, "@")
		if !isFile {
			ts.Check(form.WriteField(name, value))
			continue
		}
		part, err := form.CreateFormFile(name, file)
		ts.Check(err)
		_, err = io.WriteString(part, ts.ReadFile(file))
		ts.Check(err)
	}
	if mediaType != "application/json" {
		ts.Check(form.Close())
	}
	r, err := http.NewRequest(args[0], args[1], &body) //nolint:noctx // a script has no context
	ts.Check(err)
	r.Header.Set("Content-Type", mediaType)
	r.Header.Set("Accept", "application/json, text/event-stream")
	if token := ts.Getenv("PYEXEC_TOKEN"); token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	ts.Check(err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%d %s\n%s\n", resp.StatusCode, resp.Header.Get("Content-Type"), answer)
	if id, ok := bytes.CutPrefix(answer, []byte(`{"execution_id":"`)); ok {
		id, _, _ = bytes.Cut(id, []byte(`"`))
		ts.Setenv("EXECUTION_ID", string(id))
	}
}

// mcp FILE [FLAGS]: python-executor mcp answers the calls of FILE, one after another. Stdout has a line for each: the number of the call, its
// tool and the result. Stderr has the log. A line of FILE is TOOL {ARGUMENTS}, or METHOD {PARAMETERS} for a method with a slash, and then
//
//	> NAME=FIELD    keeps a field of the structured content; $NAME in later lines is its value
//	until TEXT      repeats the call until the result has TEXT
func mcpCalls(ts *testscript.TestScript, _ bool, args []string) {
	cmd := command(ts, append([]string{"mcp"}, args[1:]...)...)
	cmd.Stderr = ts.Stderr()
	in, err := cmd.StdinPipe()
	ts.Check(err)
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	s := mcpScript{ts: ts, in: in, out: bufio.NewReader(out)}
	_, err = s.request("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"script","version":"1"}}`)
	for i, line := range strings.Split(strings.TrimSpace(ts.ReadFile(args[0])), "\n") {
		if err == nil {
			err = s.call(i+1, line)
		}
	}
	in.Close()
	err = errors.Join(err, cmd.Wait())
	ts.Check(err)
}

// mcpScript speaks to a server over its standard streams.
type mcpScript struct {
	ts  *testscript.TestScript
	in  io.Writer
	out *bufio.Reader
	id  int
}

// request returns the result of a request, or its error, as JSON.
func (s *mcpScript) request(method, params string) (string, error) {
	s.id++
	if _, err := fmt.Fprintf(s.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", s.id, method, params); err != nil {
		return "", err
	}
	for {
		line, err := s.out.ReadBytes('\n')
		if err != nil {
			return "", err
		}
		var answer struct {
			ID            int
			Result, Error json.RawMessage
		}
		if err := json.Unmarshal(line, &answer); err != nil {
			return "", fmt.Errorf("%w: %s", err, line)
		}
		if answer.ID == s.id {
			return string(append(answer.Result, answer.Error...)), nil
		}
	}
}

var callLine = regexp.MustCompile(`^(\S+) (\{.*?\})(?: > (\w+)=(\w+))?(?: until (.+))?$`)

func (s *mcpScript) call(number int, line string) error {
	parts := callLine.FindStringSubmatch(line)
	if parts == nil {
		return fmt.Errorf("not a call: %s", line)
	}
	method, params := parts[1], os.Expand(parts[2], s.ts.Getenv)
	if !strings.Contains(method, "/") {
		method, params = "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, parts[1], params)
	}
	var result string
	err := error(nil)
	awaittest.UntilNil(script{s.ts}, line, func() error {
		if result, err = s.request(method, params); err == nil && !strings.Contains(result, parts[5]) {
			return errors.New(result)
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.ts.Stdout(), "%d %s %s\n", number, parts[1], result)
	if parts[3] != "" {
		var saved struct{ StructuredContent map[string]any }
		if err := json.Unmarshal([]byte(result), &saved); err != nil {
			return err
		}
		value, _ := saved.StructuredContent[parts[4]].(string)
		s.ts.Setenv(parts[3], value)
	}
	return nil
}
