package requirements

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// passedVariables are passed to uv unchanged. They tell where the index is, how to reach it and which authorities to trust.
// No other variable of the host's environment is passed.
var passedVariables = []string{
	"UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX", "UV_INDEX_STRATEGY",
	"UV_INSECURE_HOST", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES", "UV_OFFLINE", "UV_EXCLUDE_NEWER",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "SSL_CLIENT_CERT", "NETRC",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
}

// systemBundles are the files in which distributions keep the authorities that the machine trusts.
var systemBundles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem"}

// HostVariables returns the variables that tell uv where packages come from, how to reach them and which authorities to
// trust. The index is indexURL if it is not empty, else that of uv's own variables, else that of pip's variables, else that
// of pip.conf. uv therefore reaches what `pip install` reaches on this host. Values may hold credentials. SSL_CERT_FILE,
// NETRC and parts of UV_FIND_LINKS are paths of this host.
func HostVariables(indexURL, home string, env func(string) string) map[string]string {
	set := map[string]string{}
	for _, name := range passedVariables {
		if v := env(name); v != "" {
			set[name] = v
		}
	}
	pip := pipSettings(home, env)
	if indexURL != "" {
		delete(set, "UV_INDEX_URL")
		delete(set, "UV_NO_INDEX")
		set["UV_DEFAULT_INDEX"] = indexURL
	} else if set["UV_DEFAULT_INDEX"] == "" && set["UV_INDEX_URL"] == "" && pip["index-url"] != "" {
		set["UV_DEFAULT_INDEX"] = pip["index-url"]
	}
	orElse := func(name, value string) {
		if set[name] == "" && value != "" {
			set[name] = value
		}
	}
	if set["UV_INDEX"] == "" && set["UV_EXTRA_INDEX_URL"] == "" && indexURL == "" {
		orElse("UV_INDEX", strings.Join(strings.Fields(pip["extra-index-url"]), " "))
	}
	orElse("UV_FIND_LINKS", strings.Join(existing(pip["find-links"]), ","))
	orElse("UV_INSECURE_HOST", strings.Join(strings.Fields(pip["trusted-host"]), " "))
	orElse("SSL_CERT_FILE", cmp.Or(pip["cert"], env("REQUESTS_CA_BUNDLE"), env("CURL_CA_BUNDLE")))
	orElse("HTTPS_PROXY", pip["proxy"])
	if netrc := below(home, ".netrc"); netrc != "" && set["NETRC"] == "" && isFile(netrc) {
		set["NETRC"] = netrc
	}
	if set["SSL_CERT_FILE"] == "" && set["SSL_CERT_DIR"] == "" && slices.ContainsFunc(systemBundles, isFile) {
		// pip trusts the machine's own authorities, which also sign the index behind a company's proxy. uv has renamed the
		// variable, so both names are set.
		orElse("UV_SYSTEM_CERTS", "1")
		orElse("UV_NATIVE_TLS", "1")
	}
	return set
}

// IndexKey returns a key of the package sources in a set of HostVariables. Sets with the same sources have the same key. The
// key is a hash, because URLs may hold credentials.
func IndexKey(set map[string]string) string {
	where := []string{set["UV_DEFAULT_INDEX"], set["UV_INDEX_URL"], set["UV_INDEX"], set["UV_EXTRA_INDEX_URL"], set["UV_FIND_LINKS"], set["UV_NO_INDEX"], set["UV_INDEX_STRATEGY"], set["UV_EXCLUDE_NEWER"]}
	sum := sha256.Sum256([]byte(strings.Join(where, "\x00")))
	return hex.EncodeToString(sum[:])
}

// Places returns the texts of a set of HostVariables that hold URLs of package sources. PyPI is one if no other index is named.
func Places(set map[string]string) []string {
	index := cmp.Or(set["UV_DEFAULT_INDEX"], set["UV_INDEX_URL"], "https://pypi.org/simple https://files.pythonhosted.org")
	return []string{index, set["UV_INDEX"], set["UV_EXTRA_INDEX_URL"], set["UV_FIND_LINKS"]}
}

// Variables returns the names of all variables that HostVariables may return.
func Variables() []string { return slices.Clone(passedVariables) }

// SystemBundle returns the first of SystemBundles that exists on this machine, or "" if none does.
func SystemBundle() string {
	if i := slices.IndexFunc(systemBundles, isFile); i >= 0 {
		return systemBundles[i]
	}
	return ""
}

// SystemBundles returns the files in which distributions keep the authorities that a machine trusts.
func SystemBundles() []string { return slices.Clone(systemBundles) }

// below returns the path of a file below home, or "" if home is empty.
func below(home, path string) string {
	if home == "" {
		return ""
	}
	return filepath.Join(home, path)
}

// pipSettings returns pip's settings of this host by their names in pip.conf. Variables override the files.
func pipSettings(home string, env func(string) string) map[string]string {
	set := map[string]string{}
	files := []string{"/etc/pip.conf", "/etc/xdg/pip/pip.conf", below(home, ".pip/pip.conf"), below(home, ".config/pip/pip.conf"), env("PIP_CONFIG_FILE")}
	for _, file := range files {
		if file == "" {
			continue
		}
		readPipConf(file, set)
	}
	for _, name := range []string{"index-url", "extra-index-url", "find-links", "trusted-host", "cert", "proxy"} {
		if v := env("PIP_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))); v != "" {
			set[name] = v
		}
	}
	return set
}

// readPipConf reads the sections [global] and [install] of a pip.conf into set.
func readPipConf(path string, set map[string]string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	wanted, last := false, ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || trimmed[0] == '#' || trimmed[0] == ';':
		case trimmed[0] == '[':
			section := strings.Trim(trimmed, "[]")
			wanted, last = section == "global" || section == "install", ""
		case wanted && (line[0] == ' ' || line[0] == '\t') && last != "":
			set[last] = strings.TrimSpace(set[last] + " " + trimmed)
		case wanted:
			name, value, ok := strings.Cut(trimmed, "=")
			if !ok {
				name, value, _ = strings.Cut(trimmed, ":")
			}
			last = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "_", "-")
			set[last] = strings.TrimSpace(value)
		}
	}
}

// existing returns the URLs and the existing absolute paths in list. uv fails on a missing path, pip does not.
func existing(list string) []string {
	return slices.DeleteFunc(strings.Fields(strings.ReplaceAll(list, ",", " ")), func(place string) bool {
		if strings.Contains(place, "://") {
			return false
		}
		_, err := os.Stat(place)
		return err != nil || !filepath.IsAbs(place)
	})
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
