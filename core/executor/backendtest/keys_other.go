//go:build !linux

package backendtest

// plantKeys adds no key, because only Linux has keyrings.
func (c *Case) plantKeys(name string) string { return name }

func forgetKeys(string) {}
