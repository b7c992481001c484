package plugin

import (
	"os"
	"strings"
)

// environmentNames are the variables that a plugin inherits: what a process needs to find programs, folders, names and
// certificates. Everything else is either configuration, which is sent in Configure, or none of its business.
var environmentNames = []string{
	"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
	"XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR",
	"PYENV_ROOT",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC",
	// The host's package index, as its own pip and uv see it.
	"PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_TRUSTED_HOST", "PIP_CONFIG_FILE",
	"UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INSECURE_HOST", "UV_FIND_LINKS", "UV_PYTHON_INSTALL_DIR",
	// The Docker daemon, as the host's own docker command finds it.
	"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "DOCKER_API_VERSION", "SSH_AUTH_SOCK",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
	"GOCOVERDIR", "GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GORACE", "GOTRACEBACK",
}

// environment is the allow-listed part of ours, extra, and last what go-plugin needs; the last of a name wins.
func environment(extra, handshake []string) []string {
	var env []string
	for _, name := range environmentNames {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	env = append(env, extra...)
	for _, pair := range handshake {
		if strings.Contains(pair, "=") {
			env = append(env, pair)
		}
	}
	return env
}
