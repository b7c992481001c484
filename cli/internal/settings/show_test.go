package settings_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/python-executor/python-executor/cli/internal/settings"
	"github.com/python-executor/python-executor/core/config"
)

func TestShowingMasksWhatItWritesAndNothingElse(t *testing.T) {
	c := load(t, `
backends: {uv: {index_url: "https://me:secret@index/simple", more: ["https://me:secret@b/", {deep: "https://me:secret@c/"}], since: 2020-01-02}, nomad: {token: secret, token_file: "/a", deep: {token: ""}}}
http: {tokens: [{owner: a, sha256: `+strings.Repeat("ab", 32)+`}]}
`)
	options := string(c.Backends["uv"].Options)
	raw, err := settings.JSON(c)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	if strings.Contains(text, "secret") || strings.Count(text, "me:xxxxx@") != 3 || !strings.Contains(text, `"since": "2020-01-02"`) ||
		!strings.Contains(text, `"token": "xxxxx"`) || !strings.Contains(text, `"token": ""`) || !strings.Contains(text, `"token_file": "/a"`) {
		t.Errorf("shown: %s", text)
	}
	var shown config.Config
	if err := json.Unmarshal(raw, &shown); err != nil || !reflect.DeepEqual(shown.HTTP.Tokens[0].Scopes, []string{"exec", "read"}) {
		t.Errorf("shown: %+v, %v", shown.HTTP.Tokens, err)
	}
	if string(c.Backends["uv"].Options) != options || c.HTTP.Tokens[0].Scopes != nil {
		t.Errorf("showing it has changed it: %s, %+v", c.Backends["uv"].Options, c.HTTP.Tokens)
	}
}

func TestAFlagThatIsWrongIsNamed(t *testing.T) {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	flags.String("queued", "", "")
	if err := flags.Parse([]string{"--queued", "many"}); err != nil {
		t.Fatal(err)
	}
	_, err := settings.Load(settings.Options{Flags: map[string]*pflag.Flag{"engine.max_queued": flags.Lookup("queued")}})
	if err == nil || !strings.Contains(err.Error(), `engine.max_queued: must be a whole number (got "many", in --queued)`) {
		t.Errorf("got %v", err)
	}
}

func TestAnEmptyVariableOfASectionIsNone(t *testing.T) {
	t.Setenv("PYEXEC_BACKENDS_UV_RUN_AS", "")
	if got := string(load(t, "backends: {uv: {run_as: '5'}}\n").Backends["uv"].Options); got != `{"run_as":"5"}` {
		t.Errorf("got %s", got)
	}
}
