package agent

import "testing"

func TestOnlyAnEncryptedOrLocalAddressIsClosed(t *testing.T) {
	t.Parallel()
	for address, closed := range map[string]bool{
		"http://127.0.0.1:4646": true, "http://[::1]:4646": true, "http://localhost:4646": true, "https://10.0.0.1:4646": true, "unix:///run/nomad.sock": true,
		"http://10.0.0.1:4646": false, "http://nomad.example.org:4646": false,
	} {
		if IsOpen(address) == closed {
			t.Errorf("%s: %v", address, !closed)
		}
	}
}

func TestAnAddressHasASchemeAHostAndAPort(t *testing.T) {
	t.Parallel()
	for address, good := range map[string]bool{
		"http://host:1": true, "https://host:1/": true, "unix:///run/a.sock": true,
		"host:1": false, "http://user:word@host:1": false, "http://host:1/path": false, "http://host:1?x=y": false, "unix://relative": false, "unix://run/a.sock": false, "ftp://host": false,
	} {
		if isAddress(address) != good {
			t.Errorf("%s: %v", address, !good)
		}
	}
}
