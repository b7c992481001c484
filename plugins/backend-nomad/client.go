package nomadbackend

import (
	"cmp"
	"os"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/python-executor/python-executor/core/backend"
)

// newClient returns a client of the agent that c and the variables of the nomad command name. It makes no request. Codes: invalid (a
// file that cannot be read, among others).
func newClient(name string, c Config) (*api.Client, error) {
	p := backend.Section(name)
	settings := api.DefaultConfig()
	settings.Address = cmp.Or(c.Address, settings.Address)
	settings.Region = cmp.Or(c.Region, settings.Region)
	settings.Namespace = cmp.Or(c.Namespace, settings.Namespace)
	settings.SecretID = cmp.Or(c.Token, settings.SecretID)
	if c.TokenFile != "" {
		raw, err := os.ReadFile(c.TokenFile)
		settings.SecretID = strings.TrimSpace(string(raw))
		p.Require(err == nil, "token_file", "must be a file that can be read: %v", err)
		p.Require(err != nil || settings.SecretID != "", "token_file", "must hold a token: %s is empty", c.TokenFile)
	}
	files := settings.TLSConfig
	files.CACert = cmp.Or(c.TLS.CACert, files.CACert)
	files.TLSServerName = cmp.Or(c.TLS.ServerName, files.TLSServerName)
	if c.TLS.Cert != "" { // the two belong together
		files.ClientCert, files.ClientKey = c.TLS.Cert, c.TLS.Key
	}
	p.Require(c.TLS == TLSConfig{} || strings.HasPrefix(settings.Address, "https://"), "address", "must begin with https:// if tls is given")
	if err := p.Err(); err != nil {
		return nil, err
	}
	client, err := api.NewClient(settings)
	if err != nil {
		p.Add("address", "no client of Nomad: %s", err)
		return nil, p.Err()
	}
	return client, nil
}
