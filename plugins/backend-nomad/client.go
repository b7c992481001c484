package nomadbackend

import (
	"cmp"

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
	settings.SecretID = cmp.Or(c.agent().Secret(p, "", settings.Address), settings.SecretID)
	files := settings.TLSConfig
	files.CACert = cmp.Or(c.TLS.CACert, files.CACert)
	files.TLSServerName = cmp.Or(c.TLS.ServerName, files.TLSServerName)
	if c.TLS.Cert != "" { // the two belong together
		files.ClientCert, files.ClientKey = c.TLS.Cert, c.TLS.Key
	}
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
