package dockerbackend

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// endpoint is where a daemon is, and the files for TLS with it. The zero value means the default socket.
type endpoint struct {
	host, ca, cert, key string
	// secured: it speaks TLS, also without any file. unverified: whoever answers there is believed.
	secured, unverified bool
}

// environmentEndpoint is host with what the environment says of TLS, as the docker command takes it: DOCKER_TLS_VERIFY or
// DOCKER_TLS, or DOCKER_CERT_PATH alone, switch it on, the first also checks whom it speaks to. The files are in
// DOCKER_CERT_PATH, else in the folder of the docker command. It is for hosts that are reached by TCP.
func environmentEndpoint(host string, env func(string) string) endpoint {
	e := endpoint{host: host}
	folder, verify := env("DOCKER_CERT_PATH"), env("DOCKER_TLS_VERIFY") != ""
	if !verify && folder == "" && env("DOCKER_TLS") == "" || !e.tcp() {
		return e
	}
	e.secured, e.unverified = true, !verify
	e.ca, e.cert, e.key = tlsFiles(cmp.Or(folder, dockerFolder()))
	return e
}

// tlsFiles are those that are there of what the docker command calls them.
func tlsFiles(folder string) (ca, cert, key string) {
	file := func(base string) string {
		path := filepath.Join(folder, base)
		if _, err := os.Stat(path); err != nil { //nolint:gosec // the user's own settings
			return ""
		}
		return path
	}
	return file("ca.pem"), file("cert.pem"), file("key.pem")
}

// tcp: it is reached by TCP; a socket or SSH needs no TLS.
func (e endpoint) tcp() bool {
	return strings.HasPrefix(e.host, "tcp://") || strings.HasPrefix(e.host, "https://")
}

// tls is how to speak with it; nil: without TLS. Codes: invalid (a file that is no certificate or key).
func (e endpoint) tls() (*tls.Config, error) {
	if !e.tcp() || !e.secured && e.ca == "" && e.cert == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: e.unverified} //nolint:gosec // the user's own wish
	if e.ca != "" {
		raw, err := os.ReadFile(e.ca)
		config.RootCAs = x509.NewCertPool()
		if err == nil && !config.RootCAs.AppendCertsFromPEM(raw) {
			err = errors.New("no certificate in it")
		}
		if err != nil {
			return nil, executor.Errorf(executor.Invalid, "docker TLS: %s: %w", e.ca, err)
		}
	}
	if e.cert != "" || e.key != "" {
		pair, err := tls.LoadX509KeyPair(e.cert, e.key)
		if err != nil {
			return nil, executor.Errorf(executor.Invalid, "docker TLS: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// currentContext reads the context that the docker command would use, from its folder. name is DOCKER_CONTEXT; empty: the
// current one. Codes: invalid (a context that is named and is not there).
func currentContext(folder, name string) (endpoint, error) {
	if folder == "" {
		return endpoint{}, nil
	}
	if name == "" {
		var settings struct {
			CurrentContext string `json:"currentContext"`
		}
		raw, err := os.ReadFile(filepath.Join(folder, "config.json")) //nolint:gosec // the user's own settings
		if err != nil || json.Unmarshal(raw, &settings) != nil {
			return endpoint{}, nil //nolint:nilerr // without settings there is no context
		}
		name = settings.CurrentContext
	}
	if name == "" || name == "default" {
		return endpoint{}, nil
	}
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	raw, err := os.ReadFile(filepath.Join(folder, "contexts", "meta", id, "meta.json")) //nolint:gosec // the user's own settings
	if errors.Is(err, os.ErrNotExist) {
		return endpoint{}, executor.Errorf(executor.Invalid, "the docker context %q does not exist", name)
	}
	var meta struct {
		Endpoints struct {
			Docker struct {
				Host          string
				SkipTLSVerify bool
			} `json:"docker"`
		} `json:"Endpoints"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &meta)
	}
	if err != nil {
		return endpoint{}, executor.Errorf(executor.Invalid, "the docker context %q: %w", name, err)
	}
	c := endpoint{host: meta.Endpoints.Docker.Host, unverified: meta.Endpoints.Docker.SkipTLSVerify}
	c.ca, c.cert, c.key = tlsFiles(filepath.Join(folder, "contexts", "tls", id, "docker"))
	c.secured = c.unverified
	return c, nil
}
