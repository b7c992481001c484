package jobs

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/job"
)

// fetched returns the files at a URL of the transfer.
func fetched(t *testing.T, address string) map[string]string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	found := map[string]string{}
	for in := tar.NewReader(answer.Body); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatalf("%s: %v", answer.Status, err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = string(content)
	}
}

// textOf returns a Source of a text.
func textOf(text string) *executor.Source {
	return &executor.Source{Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

// TestTheWorkspaceGoesToTheFirstTaskThatNeedsIt: commands run in its files, and an installation does not.
func TestTheWorkspaceGoesToTheFirstTaskThatNeedsIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		preparation              preparation
		prepared                 bool
		atPreparation, atProgram string
	}{
		"no preparation": {preparation{}, false, "", "files"},
		"commands":       {preparation{commands: []string{"make"}}, true, "files", ""},
		"requirements":   {preparation{lines: []string{"six"}}, true, "", "files"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := afar(t, func(c *Config) { c.Prepare.CACert = "" })
			o, _, err := b.order(t.Context(), executor.Job{ID: "exe_1", Spec: executor.Spec{Code: "1"}, Workspace: textOf("files")}, "image", c.preparation)
			if err != nil {
				t.Fatal(err)
			}
			var start job.Start
			if err := json.Unmarshal(o.program.inline[job.StartFile], &start); err != nil {
				t.Fatal(err)
			}
			if (start.Prepared != "") != c.prepared || (o.prepare != nil) != c.prepared {
				t.Errorf("prepared in %q, by %+v", start.Prepared, o.prepare)
			}
			if got := string(o.program.inline[job.WorkspaceFile]); got != c.atProgram {
				t.Errorf("the program has the files %q, want %q", got, c.atProgram)
			}
			if o.prepare == nil {
				return
			}
			files := map[string]string{}
			for name, content := range o.prepare.inline {
				files[name] = string(content)
			}
			if o.prepare.url != "" { // the authorities of this host may be many
				files = fetched(t, o.prepare.url)
			}
			if got := files[job.WorkspaceFile]; got != c.atPreparation {
				t.Errorf("the preparation has the files %q, want %q", got, c.atPreparation)
			}
		})
	}
}

func TestAnInputThatIsTooLargeForTheJobIsKeptWhole(t *testing.T) {
	t.Parallel()
	b := afar(t, nil)
	large := strings.Repeat("0123456789", maxInline/10+1)
	for name, c := range map[string]struct {
		content map[string]string // by the file's name, a to c
		kept    bool
	}{
		"small":             {map[string]string{"a": "1", "b": "2"}, false},
		"at the bound":      {map[string]string{"a": "1", "b": large[:maxInline-1]}, false},
		"a byte more":       {map[string]string{"a": "1", "b": large[:maxInline]}, true},
		"the last is small": {map[string]string{"a": "1", "b": large, "c": "3"}, true},
		"one is empty":      {map[string]string{"a": "1", "b": "", "c": "3"}, true},
		"no standard input": {map[string]string{"a": "1", job.StdinFile: ""}, false},
	} {
		var list []inputFile
		for _, name := range []string{"a", "b", "c", job.StdinFile} {
			if text, has := c.content[name]; has {
				list = append(list, inputFile{name, strings.NewReader(text)})
			}
		}
		f, err := b.bring("exe_1", taskProgram, list)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for name, content := range f.inline {
			got[name] = string(content)
		}
		if (f.url != "") != c.kept {
			t.Errorf("%s: kept %v", name, f.url != "")
		}
		if f.url != "" {
			got = fetched(t, f.url)
		}
		if got[job.StdinFile] == "" && !c.kept {
			if _, has := got[job.StdinFile]; has { // a template cannot be empty
				t.Errorf("%s: the job has an empty file", name)
			}
			delete(c.content, job.StdinFile)
		}
		for file, text := range c.content {
			if got[file] != text || len(got) != len(c.content) {
				t.Errorf("%s: %s has %d bytes, want %d; %d files", name, file, len(got[file]), len(text), len(got))
			}
		}
	}
}

// TestAnInputIsThereForAsLongAsAJobMayWait: pulling an image takes time, too.
func TestAnInputIsThereForAsLongAsAJobMayWait(t *testing.T) {
	t.Parallel()
	b := &Backend{config: Default()}
	if got := b.inputLifetime(); got < b.config.queueTimeout()+time.Hour {
		t.Errorf("%s", got)
	}
}

// TestPreparationsGetNoCredentials: the job is visible in Nomad.
func TestPreparationsGetNoCredentials(t *testing.T) {
	for name, v := range map[string]string{
		"UV_DEFAULT_INDEX": "http://a:canary@plain.example:8/simple", "UV_INDEX": "https://b:canary@more.example/simple", "HTTPS_PROXY": "http://c:canary@proxy:3",
		"UV_NO_INDEX": "1", "UV_INSECURE_HOST": "old.example",
	} {
		t.Setenv(name, v)
	}
	b := &Backend{config: Default()}
	variables, _ := b.sources()
	for name, want := range map[string]string{
		"UV_DEFAULT_INDEX": "http://plain.example:8/simple", "PIP_INDEX_URL": "http://plain.example:8/simple", "PIP_EXTRA_INDEX_URL": "https://more.example/simple",
		"PIP_TRUSTED_HOST": "old.example plain.example:8", "PIP_NO_INDEX": "1", "HTTPS_PROXY": "http://proxy:3", "UV_NO_CONFIG": "1",
	} {
		if variables[name] != want {
			t.Errorf("%s is %q, want %q", name, variables[name], want)
		}
	}
	commands := proxies(variables)
	if commands["HTTPS_PROXY"] != "http://proxy:3" || commands["DEBIAN_FRONTEND"] != "noninteractive" || commands["UV_DEFAULT_INDEX"] != "" || commands["PIP_INDEX_URL"] != "" {
		t.Errorf("commands get %v", commands)
	}
}

func TestEmptyCommandsAreLeftOut(t *testing.T) {
	t.Parallel()
	b := &Backend{config: Default()}
	for _, c := range []struct {
		commands     []string
		requirements string
		want         []string
		needed       bool
	}{{nil, "", nil, false}, {[]string{" \n", "make", ""}, "", []string{"make"}, true}, {[]string{""}, "", nil, false}, {nil, "six", nil, true}} {
		p, failure := b.preparation(executor.Spec{PreCommands: c.commands, Requirements: c.requirements})
		if failure != nil || !slices.Equal(p.commands, c.want) || p.needed() != c.needed {
			t.Errorf("%q and %q: %+v, %+v", c.commands, c.requirements, p, failure)
		}
	}
	l := (&Backend{config: Default()}).prepareLimits(executor.Limits{CPUShares: 7})
	if d := Default().Prepare; l.DiskBytes != int64(d.DiskMB)<<20 || l.MemoryBytes != int64(d.MemoryMB)<<20 || l.CPUShares != 7 || l.Timeout != time.Duration(d.TimeoutSeconds)*time.Second {
		t.Errorf("the limits are %+v", l)
	}
}
