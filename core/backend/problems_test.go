package backend

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

func TestEveryWrongSettingIsNamedByItsPath(t *testing.T) {
	t.Parallel()
	type config struct {
		Text    string            `json:"text"`
		Number  int               `json:"number"`
		Share   float64           `json:"share"`
		On      bool              `json:"on"`
		List    []string          `json:"list"`
		Mapping map[string]string `json:"mapping"`
		Pool    struct {
			Max int64 `json:"max"`
		} `json:"pool"`
	}
	for section, want := range map[string]string{
		``:                      "",
		`null`:                  "",
		`{"text": "x"}`:         "",
		`[]`:                    "backends.b: must be a mapping of settings",
		`{"other": "x"}`:        "backends.b.other: unknown key; known are list, mapping, number, on, pool, share, text",
		`{"texts": "x"}`:        "backends.b.texts: unknown key: did you mean backends.b.text?",
		`{"Number": 1}`:         "backends.b.Number: unknown key: did you mean backends.b.number?",
		`{"pool": {"mx": 1}}`:   "backends.b.pool.mx: unknown key; known are max",
		`{"pool": {"maxx": 1}}`: "backends.b.pool.maxx: unknown key: did you mean backends.b.pool.max?",
		`{"text": 1}`:           "backends.b.text: must be a text (got 1)",
		`{"number": "x"}`:       `backends.b.number: must be a whole number (got "x")`,
		`{"share": "x"}`:        `backends.b.share: must be a number (got "x")`,
		`{"on": 1}`:             "backends.b.on: must be true or false (got 1)",
		`{"list": 1}`:           "backends.b.list: must be a list of texts (got 1)",
		`{"mapping": 1}`:        "backends.b.mapping: must be a mapping of texts (got 1)",
		`{"pool": 3}`:           "backends.b.pool: must be a mapping of settings",
		`{"pool": {"max": "x", "min": 1}, "a": 1}`: "backends.b.a: unknown key; known are list, mapping, number, on, pool, share, text\n" +
			`backends.b.pool.max: must be a whole number (got "x")` + "\nbackends.b.pool.min: unknown key; known are max",
		`{"number": "https://user:secret@host/"}`: `backends.b.number: must be a whole number (got "https://host/")`,
	} {
		p := Section("b")
		c := config{Text: "default", Number: 7}
		p.Read(json.RawMessage(section), &c)
		got := ""
		if err := p.Err(); err != nil {
			got = err.Error()
			if executor.CodeOf(err) != executor.Invalid {
				t.Errorf("%s: code %s", section, executor.CodeOf(err))
			}
		}
		if got != want {
			t.Errorf("%s:\n%s\nwant\n%s", section, got, want)
		}
		if c.Number != 7 {
			t.Errorf("%s: a default became %d", section, c.Number)
		}
	}
}

func TestAnInvalidValueOutweighsAMissingCapability(t *testing.T) {
	t.Parallel()
	reasons := map[string]string{"script": "no host scripts here"}
	for _, c := range []struct {
		spec executor.Spec
		code executor.Code
		says string
	}{
		{executor.Spec{}, "", ""},
		{executor.Spec{Script: "x"}, executor.Unimplemented, "script: no host scripts here"},
		{executor.Spec{PreCommands: []string{"x"}}, executor.Unimplemented, "pre_commands: this backend cannot do or enforce this"},
		{executor.Spec{Language: "cobol"}, executor.Unimplemented, `language: must be python outside of a session (got "cobol"); use command for other programs`},
		{executor.Spec{Script: "x", PythonVersion: "3.12.1"}, executor.Invalid, "python_version: must be an exact minor version such as 3.12 (got \"3.12.1\")\nscript: no host scripts here"},
		{executor.Spec{Interpreter: executor.InterpreterSystem, Requirements: "six"}, executor.Invalid, "requirements_txt: cannot be installed into the system interpreter"},
		{executor.Spec{Interpreter: executor.InterpreterSystem, Requirements: " \n"}, "", ""},
	} {
		err := CheckSpec(c.spec, executor.Capabilities{SystemInterpreter: true, Requirements: true}, reasons).Err()
		if executor.CodeOf(err) != c.code {
			t.Errorf("%+v: %v", c.spec, err)
		}
		if e, ok := errors.AsType[*executor.Error](err); ok && (e.Message != c.says || len(e.Fields) != strings.Count(c.says, "\n")+1) {
			t.Errorf("%+v: %q, want %q", c.spec, e.Message, c.says)
		}
	}
}

func TestASectionIsReadOverTheDefaultsAndThenValidated(t *testing.T) {
	t.Parallel()
	type config struct {
		Number int `json:"number"`
		Other  int `json:"other"`
	}
	defaults := config{Number: 7, Other: 8}
	refuse := func(c config, name string) error {
		return executor.Errorf(executor.Invalid, "%s has %d and %d", name, c.Number, c.Other)
	}
	if c, err := ParseSection("b", json.RawMessage(`{"other": 9}`), defaults, func(config, string) error { return nil }); err != nil || c != (config{7, 9}) {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := ParseSection("b", json.RawMessage(`{"other": 9}`), defaults, refuse); err == nil || err.Error() != "b has 7 and 9" {
		t.Error(err)
	}
	if _, err := ParseSection("b", json.RawMessage(`{"other": "x"}`), defaults, refuse); err == nil || !strings.Contains(err.Error(), "backends.b.other: must be a whole number") {
		t.Error(err)
	}
}

func TestASectionIsFilledWithTheDefaults(t *testing.T) {
	t.Parallel()
	type config struct {
		Number int    `json:"number"`
		Text   string `json:"text"`
	}
	for section, want := range map[string]string{
		``:                          `{"number":7,"text":"default"}`,
		`{"text":"x"}`:              `{"number":7,"text":"x"}`,
		`{"text":"x","number":"y"}`: `{"text":"x","number":"y"}`,
		`[1]`:                       `[1]`,
	} {
		if got := Filled(json.RawMessage(section), &config{7, "default"}); string(got) != want {
			t.Errorf("%s: %s, want %s", section, got, want)
		}
	}
}

func TestVersionsAndURLs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"3.0": true, "3.8": true, "3.12": true, "3.99": true,
		"": false, "3": false, "3.": false, "3.08": false, "3.100": false, "3.12.1": false, "2.7": false, "33.1": false, " 3.12": false, "3.12\n": false, "3x12": false,
	} {
		if IsMinorVersion(text) != want {
			t.Errorf("the version %q: %t", text, !want)
		}
	}
	for text, want := range map[string]bool{
		"https://host": true, "http://host:80/path": true, "https://user:secret@host/": true,
		"": false, "host": false, "https://": false, "https:///path": false, "ftp://host": false, "file:///path": false, "https://ho st": false,
	} {
		if IsURL(text) != want {
			t.Errorf("the URL %q: %t", text, !want)
		}
	}
}
