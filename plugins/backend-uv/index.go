package uvbackend

import (
	"cmp"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/fetchproxy"
	"github.com/python-executor/python-executor/core/requirements"
)

// pipVariables are the variables of the host that pip gets when it fetches uv.
var pipVariables = []string{
	"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_TRUSTED_HOST", "PIP_CERT", "PIP_CLIENT_CERT",
	"PIP_PROXY", "PIP_DEFAULT_TIMEOUT", "PIP_CONFIG_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
}

// index has the settings of the package index.
type index struct {
	// uv and pip are the variables of the two tools, as "NAME=value".
	uv  []string
	pip []string
	// key identifies the index in an environment's key. It is a hash, because addresses may have credentials.
	key string
	// shown is the index's address without credentials, for users.
	shown string
	// sources are the endpoints of the index and of the other places of packages. upstream chooses the proxy of this host for a URL.
	sources  []string
	upstream func(*url.URL) (*url.URL, error)
}

// hostIndex reads the index settings: backends.uv.index_url, else uv's own variables, else pip's variables, else pip.conf. The
// backend so uses the same index as `pip install` on this host.
func hostIndex(indexURL, home string, env func(string) string) index {
	set := requirements.HostVariables(indexURL, home, env)
	x := index{uv: variables(set), key: requirements.IndexKey(set)}
	x.upstream = fetchproxy.Upstream(set)
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
	x.sources = fetchproxy.Sources(append(requirements.Places(set), forPip["PIP_INDEX_URL"], forPip["PIP_EXTRA_INDEX_URL"], forPip["PIP_FIND_LINKS"], env(pythonMirror), env(pythonList))...)
	// pip runs with another home, so variables name the files that it would find in the user's home.
	if netrc := set["NETRC"]; netrc != "" {
		forPip["NETRC"] = netrc
	}
	for _, name := range []string{".config/pip/pip.conf", ".pip/pip.conf"} {
		if conf := below(home, name); forPip["PIP_CONFIG_FILE"] == "" && isFile(conf) {
			forPip["PIP_CONFIG_FILE"] = conf
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
