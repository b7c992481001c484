package tests

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pyexec "github.com/python-executor/python-executor/sdk/go"
)

// modesAndEmptyFolders copies a program and an empty folder into a session and out of it, by its name, over every way in but the Python
// SDK, whose own tests do so.
func modesAndEmptyFolders(t *testing.T, s *server) {
	const name, tool, mode = "modes and folders", "#!/bin/sh\necho ran\n", 0o750
	id := s.session(`{"name":"` + name + `"}`)
	at := "/api/v1/sessions/" + url.PathEscape(name) + "/files"
	client, err := pyexec.NewClient(s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	dir := t.TempDir()
	local := filepath.Join(dir, "cli", "tool")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "cli", "empty"), 0o755), os.WriteFile(local, []byte(tool), 0o600), os.Chmod(local, mode)); err != nil {
		t.Fatal(err)
	}

	for path, body := range map[string]string{"/http/tool?mode=750": tool, "/http/empty?directory=true": ""} {
		if a := s.do(s.request(http.MethodPut, at+path, strings.NewReader(body))); a.status != http.StatusOK {
			t.Errorf("PUT %s: %d %s", path, a.status, a.body)
		}
	}
	for _, f := range []pyexec.File{{Path: "go/tool", Mode: mode}, {Path: "go/empty", Directory: true}} {
		content := strings.NewReader(tool)
		if f.Directory {
			content = strings.NewReader("")
		}
		if _, err := client.WriteFile(t.Context(), name, f, content); err != nil {
			t.Errorf("%s by the Go SDK: %v", f.Path, err)
		}
	}
	env := []string{"PYEXEC_SERVER=" + s.url}
	if o := cli(t, env, nil, "session", "cp", "-r", filepath.Join(dir, "cli"), name+":"); o.code != 0 {
		t.Errorf("cp -r into it: %+v", o)
	}

	back := filepath.Join(dir, "back")
	if o := cli(t, env, nil, "session", "cp", "-r", name+":.", back); o.code != 0 {
		t.Errorf("cp -r out of it: %+v", o)
	}
	for _, way := range []string{"http", "go", "cli"} {
		s.expect(id, fmt.Sprintf("import os, subprocess; subprocess.check_output('%[1]s/tool', text=True), os.stat('%[1]s/tool').st_mode & 0o777 == %[2]d, os.listdir('%[1]s/empty')", way, mode),
			`('ran\n', True, [])`)
		if a := s.get(at + "/" + way + "/tool"); string(a.body) != tool || a.header.Get("X-File-Mode") != "0750" {
			t.Errorf("GET %s/tool: %d with mode %s", way, a.status, a.header.Get("X-File-Mode"))
		}
		f, content, err := client.DownloadFile(t.Context(), name, way+"/tool")
		if err != nil || f.Mode != mode {
			t.Errorf("%s/tool by the Go SDK: %+v, %v", way, f, err)
		}
		if err == nil {
			_ = content.Close()
		}
		if info, err := os.Stat(filepath.Join(back, way, "tool")); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s/tool by cp -r: %v, %v", way, info, err)
		}
		if info, err := os.Stat(filepath.Join(back, way, "empty")); err != nil || !info.IsDir() {
			t.Errorf("%s/empty by cp -r: %v, %v", way, info, err)
		}
	}
}
