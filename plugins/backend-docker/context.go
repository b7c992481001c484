package dockerbackend

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/cli/cli/config"
	dockercontext "github.com/docker/cli/cli/context"
	"github.com/docker/cli/cli/context/store"

	"github.com/python-executor/python-executor/core/executor"
)

// endpoint is the address of a daemon and its TLS settings. The zero value means the default socket.
type endpoint struct {
	host string
	// files holds the certificates and the key for TLS; nil if there are none.
	files *dockercontext.TLSData
	// secured reports whether the daemon speaks TLS, even without files. unverified reports whether its certificate is not
	// checked.
	secured, unverified bool
}

// environmentEndpoint returns the endpoint of host with the TLS settings of the environment, as the docker command reads them.
// DOCKER_TLS_VERIFY, DOCKER_TLS or DOCKER_CERT_PATH switch TLS on for hosts that are reached by TCP. Only with
// DOCKER_TLS_VERIFY is the daemon's certificate checked. The files are in DOCKER_CERT_PATH, else in the folder of the docker
// command. Codes: invalid (a file cannot be read).
func environmentEndpoint(host string, env func(string) string) (endpoint, error) {
	e := endpoint{host: host}
	folder, verify := env("DOCKER_CERT_PATH"), env("DOCKER_TLS_VERIFY") != ""
	if !verify && folder == "" && env("DOCKER_TLS") == "" || !e.tcp() {
		return e, nil
	}
	e.secured, e.unverified = true, !verify
	folder = cmp.Or(folder, dockerFolder())
	file := func(base string) string {
		path := filepath.Join(folder, base)
		if _, err := os.Stat(path); err != nil { //nolint:gosec // the user's own settings
			return ""
		}
		return path
	}
	var err error
	if e.files, err = dockercontext.TLSDataFromFiles(file("ca.pem"), file("cert.pem"), file("key.pem")); err != nil {
		return endpoint{}, executor.Errorf(executor.Invalid, "docker TLS: %w", err)
	}
	return e, nil
}

// tcp reports whether the daemon is reached by TCP. A socket or SSH needs no TLS.
func (e endpoint) tcp() bool {
	return strings.HasPrefix(e.host, "tcp://") || strings.HasPrefix(e.host, "https://")
}

// tls returns the TLS settings for the daemon; nil if the connection has no TLS. Codes: invalid (no certificate or key).
func (e endpoint) tls() (*tls.Config, error) {
	if !e.tcp() || !e.secured && e.files == nil {
		return nil, nil
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: e.unverified} //nolint:gosec // the user's choice
	if e.files == nil {
		return settings, nil
	}
	if e.files.CA != nil {
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(e.files.CA) {
			return nil, executor.Errorf(executor.Invalid, "docker TLS: ca.pem holds no certificate")
		}
	}
	if e.files.Cert != nil || e.files.Key != nil {
		pair, err := tls.X509KeyPair(e.files.Cert, e.files.Key)
		if err != nil {
			return nil, executor.Errorf(executor.Invalid, "docker TLS: cert.pem and key.pem: %w", err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	return settings, nil
}

// currentContext reads the context that the docker command would use, from its folder. name is DOCKER_CONTEXT; empty: the
// current context. Codes: invalid (a context that does not exist or cannot be read).
func currentContext(folder, name string) (endpoint, error) {
	if folder == "" {
		return endpoint{}, nil
	}
	if name == "" {
		settings, err := config.Load(folder)
		if err != nil {
			return endpoint{}, nil //nolint:nilerr // without settings there is no context
		}
		name = settings.CurrentContext
	}
	if name == "" || name == "default" {
		return endpoint{}, nil
	}
	const docker = "docker" // the endpoint's name in a context
	contexts := store.New(filepath.Join(folder, "contexts"), store.NewConfig(func() any { return &map[string]any{} },
		store.EndpointTypeGetter(docker, func() any { return &dockercontext.EndpointMetaBase{} })))
	meta, err := contexts.GetMetadata(name)
	if errdefs.IsNotFound(err) {
		return endpoint{}, executor.Errorf(executor.Invalid, "the docker context %q does not exist", name)
	}
	at, ok := meta.Endpoints[docker].(dockercontext.EndpointMetaBase)
	if err == nil && !ok {
		err = errors.New("the context has no docker endpoint")
	}
	var files *dockercontext.TLSData
	if err == nil {
		files, err = dockercontext.LoadTLSData(contexts, name, docker)
	}
	if err != nil {
		return endpoint{}, executor.Errorf(executor.Invalid, "the docker context %q: %w", name, err)
	}
	return endpoint{host: at.Host, files: files, secured: at.SkipTLSVerify, unverified: at.SkipTLSVerify}, nil
}
