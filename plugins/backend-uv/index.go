package uvbackend

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/requirements"
)

// pipVariables reach pip, when it fetches uv.
var pipVariables = []string{
	"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_TRUSTED_HOST", "PIP_CERT", "PIP_CLIENT_CERT",
	"PIP_PROXY", "PIP_DEFAULT_TIMEOUT", "PIP_CONFIG_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
}

// index is which packages are taken from where.
type index struct {
	// uv and pip are variables for the two tools.
	uv  []string
	pip []string
	// key tells two indexes apart in an environment's identity. It may come from addresses with credentials, so it is a hash.
	key string
	// shown is what people may see: the index's address without credentials, or "".
	shown string
}

// hostIndex reads the index settings: backends.uv.index_url, else what uv's own variables say, else pip's, else pip.conf.
// So what `pip install` reaches on this host is reached here too.
func hostIndex(indexURL, home string, env func(string) string) index {
	set := requirements.HostVariables(indexURL, home, env)
	x := index{uv: variables(set), key: requirements.IndexKey(set)}
	x.shown = requirements.WithoutCredentials(cmp.Or(set["UV_DEFAULT_INDEX"], set["UV_INDEX_URL"], "https://pypi.org/simple"))

	forPip := map[string]string{}
	for _, name := range append(slices.Clone(pipVariables), requirements.Variables()...) {
		if v := env(name); v != "" && !strings.HasPrefix(name, "UV_") {
			forPip[name] = v
		}
	}
	if indexURL != "" {
		forPip["PIP_INDEX_URL"] = indexURL
		delete(forPip, "PIP_NO_INDEX")
	} else if forPip["PIP_INDEX_URL"] == "" {
		if v := cmp.Or(env("UV_DEFAULT_INDEX"), env("UV_INDEX_URL")); v != "" {
			forPip["PIP_INDEX_URL"] = v
		}
	}
	x.pip = variables(forPip)
	return x
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func variables(set map[string]string) []string {
	var list []string
	for name, value := range set {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}
