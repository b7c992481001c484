package backendtest

import "fmt"

// earlierPython adds keys to every keyring that it reaches. It stands for an earlier program of the same user.
const earlierPython = `
for ring in (-1, -2, -3, -4, -5):
    try:
        call("add_key", b"user", b"%[1]s", b"secret", 6, ring)
    except OSError:
        pass
`

func abuseKeyring(c *Case) {
	planted := c.plantKeys("pyexec-law-planted-" + c.mark())
	earlier := "pyexec-law-earlier-" + c.mark()
	c.program(Program{Python: prelude + fmt.Sprintf(earlierPython, earlier), Fake: "print up"}).succeeded()
	c.Cleanup(func() { forgetKeys(earlier) })
	attempts := []attempt{
		{"add a key", always, `return call("add_key", b"user", b"pyexec-law", b"secret", 6, -3)`},
		{"add a key for all of its user", always, `return call("add_key", b"user", b"pyexec-law", b"secret", 6, -4)`},
		{"ask for a key", always, `return call("request_key", b"user", b"pyexec-law", None, -4)`},
		{"the session's keyring", always, `return call("keyctl", 0, -3, 1)`},
		{"a session of its own", always, `return call("keyctl", 1, b"pyexec-law")`},
		{"all keys of its user", always, `
call("keyctl", 8, -4, -3)
return "linked"`},
		{"the keys of others", always, `
for line in open("/proc/keys"):
    number = int(line.split()[0], 16)
    buffer = ctypes.create_string_buffer(4096)
    if "user" in line or "logon" in line:
        try:
            return call("keyctl", 11, number, buffer, 4096), line
        except OSError:
            pass
raise Refused("there are none")`},
		{"what it left itself", always, `
return call("keyctl", 10, -4, b"user", b"pyexec-law", 0)`},
		{"the name of a key that somebody left in a session", separated, `
for line in open("/proc/keys"):
    if " _ses" in line and not line.rstrip().endswith("empty"):
        return line
raise Refused("there is none")`},
	}
	for whose, name := range map[string]string{"the server's user": planted, "an earlier program": earlier} {
		attempts = append(attempts, findKey(whose, name)...)
	}
	c.try(attempts)
}

// findKey returns attempts to find a key of that name that another process has added.
func findKey(whose, name string) []attempt {
	list := []attempt{
		{"a key that " + whose + " left, by asking", always, fmt.Sprintf(`return call("request_key", b"user", b"%s", None, 0)`, name)},
		{"a key that " + whose + " left, by its name", always, fmt.Sprintf(`
return first((-1, -2, -3, -4, -5), lambda ring: call("keyctl", 10, ring, b"user", b"%s", 0))`, name)},
		{"a key that " + whose + " left, by its number", always, fmt.Sprintf(`
buffer = ctypes.create_string_buffer(4096)
def use(line):
    number = int(line.split()[0], 16)
    first((11, 6), lambda operation: call("keyctl", operation, number, buffer, 4096))
    return line
return first([line for line in open("/proc/keys") if "%s" in line], use)`, name)},
		{"a key that " + whose + " left, by a link", always, fmt.Sprintf(`
return first([line for line in open("/proc/keys") if "%s" in line], lambda line: call("keyctl", 8, int(line.split()[0], 16), -2))`, name)},
		{"the name of a key that " + whose + " left", separated, fmt.Sprintf(`
for line in open("/proc/keys"):
    if "%s" in line:
        return line
raise Refused("it is not to be seen")`, name)},
	}
	return list
}
