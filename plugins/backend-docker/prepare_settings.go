package dockerbackend

import (
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/fetchproxy"
	"github.com/python-executor/python-executor/core/requirements"
)

// hostSettings are the settings of this host that images use: the docker command's folder, the home folder and the environment.
type hostSettings struct {
	docker credentialsFile
	home   string
	env    func(string) string
}

// prepareSettings are the package sources and limits of preparations.
type prepareSettings struct {
	// section is the path of these settings in the configuration, and trust that of the list of trusted images. Both are for
	// messages.
	section, trust string
	timeout        time.Duration
	// memory and disk are limits in bytes.
	memory, disk int64
	// network is the network of both steps. If it is empty, wheels are fetched over the daemon's bridge. pre_commands, which users
	// write, and code of packages (allowBuilds) then have the network of programs: from the bridge they could reach the operator's network.
	network     string
	allowBuilds bool
	// variables are those of uv and pip, without links. proxies are the proxy variables, which pre_commands get as well.
	variables map[string]string
	proxies   map[string]string
	// folders are find-links folders of this host. links are find-links URLs.
	folders []string
	links   []string
	// bundle is a file of this host with the certificate authorities to trust. netrc is a file with credentials of indexes.
	// Either may be empty.
	bundle, netrc string
	// fetches says what installations may fetch from.
	fetches fetchproxy.Policy
	// key identifies the package sources.
	key string
	// uv is the path of this host's uv; empty if there is none.
	uv string
}

// indexVariables are the variables of uv that mean the same in a container.
var indexVariables = []string{
	"UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_NO_INDEX", "UV_INDEX_STRATEGY", "UV_INSECURE_HOST",
	"UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES", "UV_OFFLINE", "UV_EXCLUDE_NEWER",
}

var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"}

// newPrepareSettings combines the section prepare with the settings of pip and uv on this host. Codes: invalid (ca_cert cannot
// be read).
func newPrepareSettings(c PrepareConfig, section string, host hostSettings) (prepareSettings, error) {
	set := requirements.HostVariables(c.IndexURL, host.home, host.env)
	if len(c.ExtraIndexURLs) > 0 {
		delete(set, "UV_EXTRA_INDEX_URL")
		set["UV_INDEX"] = strings.Join(c.ExtraIndexURLs, " ")
	}
	if c.FindLinks != "" {
		set["UV_FIND_LINKS"] = c.FindLinks
	}
	s := prepareSettings{
		section: section, timeout: time.Duration(c.TimeoutSeconds) * time.Second, memory: int64(c.MemoryMB) << 20, disk: int64(c.DiskMB) << 20,
		network: c.Network, allowBuilds: c.AllowBuilds, variables: map[string]string{}, proxies: map[string]string{},
		key: requirements.IndexKey(set), bundle: cmp.Or(c.CACert, set["SSL_CERT_FILE"], requirements.SystemBundle()), netrc: set["NETRC"], uv: hostUV(host),
	}
	s.fetches.Sources = fetchproxy.Sources(requirements.Places(set)...)
	for _, name := range indexVariables {
		if v := set[name]; v != "" {
			s.variables[name] = v
		}
	}
	for _, name := range proxyVariables {
		if v := set[name]; v != "" {
			s.proxies[name] = v
		}
	}
	if c.Proxy != "" {
		for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
			s.proxies[name] = c.Proxy
		}
	}
	for _, link := range strings.FieldsFunc(set["UV_FIND_LINKS"], func(r rune) bool { return r == ',' || r == ' ' }) {
		if strings.Contains(link, "://") {
			s.links = append(s.links, link)
		} else {
			s.folders = append(s.folders, link)
		}
	}
	if c.CACert != "" {
		if _, err := os.ReadFile(c.CACert); err != nil {
			return prepareSettings{}, executor.FieldErrorf(executor.Invalid, section+".ca_cert", "cannot be read: %s", err)
		}
	}
	return s, nil
}

// given returns the settings for a preparation on an image. A trusted image gets all credentials, another image none. After
// users' commands (foreign) a trusted image gets only those of the proxies, which the commands had as well.
func (s prepareSettings) given(trusted, foreign bool) prepareSettings {
	if !trusted {
		s.proxies = openAddresses(s.proxies)
	}
	if !trusted || foreign {
		s.netrc, s.variables, s.links = "", openAddresses(s.variables), slices.Clone(s.links)
		for n, link := range s.links {
			s.links[n] = requirements.WithoutCredentials(link)
		}
	}
	return s
}

// openAddresses returns a copy of variables without the credentials in their addresses.
func openAddresses(variables map[string]string) map[string]string {
	open := maps.Clone(variables)
	for name, v := range open {
		open[name] = requirements.WithoutCredentials(v)
	}
	return open
}

// fewerThan reports whether s lacks credentials that all has.
func (s prepareSettings) fewerThan(all prepareSettings) bool {
	return s.netrc != all.netrc || !maps.Equal(s.variables, all.variables) || !maps.Equal(s.proxies, all.proxies) || !slices.Equal(s.links, all.links)
}

// forTools returns the variables of uv and pip in the container. bundle, netrc and links are paths or URLs as the container
// sees them.
func (s prepareSettings) forTools(bundle, netrc string, links []string) map[string]string {
	set := map[string]string{"UV_NO_CONFIG": "1", "UV_NO_ENV_FILE": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
	maps.Copy(set, s.variables)
	maps.Copy(set, s.proxies)
	// An index with an http URL is meant to be used without TLS. pip requires its host in a list of trusted hosts.
	trusted := strings.Fields(set["UV_INSECURE_HOST"])
	for _, index := range strings.Fields(strings.Join([]string{set["UV_DEFAULT_INDEX"], set["UV_INDEX_URL"], set["UV_INDEX"], set["UV_EXTRA_INDEX_URL"]}, " ")) {
		if u, err := url.Parse(index); err == nil && u.Scheme == "http" {
			trusted = append(trusted, u.Host)
		}
	}
	pip := map[string]string{
		"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": cmp.Or(set["UV_DEFAULT_INDEX"], set["UV_INDEX_URL"]),
		"PIP_EXTRA_INDEX_URL": cmp.Or(set["UV_INDEX"], set["UV_EXTRA_INDEX_URL"]), "PIP_NO_INDEX": set["UV_NO_INDEX"],
		"PIP_TRUSTED_HOST": strings.Join(trusted, " "), "PIP_DEFAULT_TIMEOUT": set["UV_HTTP_TIMEOUT"],
		"UV_FIND_LINKS": strings.Join(links, ","), "PIP_FIND_LINKS": strings.Join(links, " "),
		"SSL_CERT_FILE": bundle, "PIP_CERT": bundle, "NETRC": netrc,
	}
	for name, v := range pip {
		if v != "" {
			set[name] = v
		}
	}
	return set
}

// forCommands returns the variables of pre_commands: proxies and certificate authorities. Users write these commands, so they
// get no credentials of indexes.
func (s prepareSettings) forCommands(bundle, aptConfig string) map[string]string {
	set := map[string]string{"DEBIAN_FRONTEND": "noninteractive", "HOME": "/root"}
	maps.Copy(set, s.proxies)
	if bundle != "" {
		for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"} {
			set[name] = bundle
		}
		set["APT_CONFIG"] = aptConfig
	}
	return set
}

// hostUV finds uv on this host: on PATH, in the folders of its installer, or in those of the uv backend. hostUV does not run
// it: the preparation tests whether it runs in the image.
func hostUV(host hostSettings) string {
	var files []string
	for _, dir := range filepath.SplitList(host.env("PATH")) {
		files = append(files, filepath.Join(dir, "uv"))
	}
	patterns := []string{"/var/cache/python-executor/tools/uv-*/bin/uv"}
	if host.home != "" {
		files = append(files, filepath.Join(host.home, ".local/bin/uv"), filepath.Join(host.home, ".cargo/bin/uv"))
		patterns = append(patterns, filepath.Join(host.home, ".cache/python-executor/uv/tools/uv-*/bin/uv"))
	}
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern) // only a malformed pattern fails
		slices.Reverse(found)
		files = append(files, found...)
	}
	for _, file := range files {
		if real, err := filepath.EvalSymlinks(file); err == nil && isELF(real) {
			return real
		}
	}
	return ""
}

// isELF reports whether a file is an ELF program. A script, such as a shim, would not work in a container.
func isELF(path string) bool {
	f, err := elf.Open(path)
	return err == nil && f.Close() == nil
}

// hashOf returns the SHA-256 of parts, in hexadecimal.
func hashOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		// The lengths keep different lists of parts from hashing the same bytes.
		_, _ = h.Write([]byte{byte(len(p) >> 24), byte(len(p) >> 16), byte(len(p) >> 8), byte(len(p))})
		_, _ = h.Write([]byte(p)) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}
