package requirements

import _ "embed"

// Driver is a Python program that installs requirements, with uv or with the image's pip. Its documentation is in driver.py.
//
//go:embed driver.py
var Driver string

// DriverJob is the first line of the Driver's standard input.
type DriverJob struct {
	// Base is a folder that the Driver may write to. The environment is its folder env. Tools has what the Driver needs: uv, if
	// it is to be used. The Driver removes Tools at its end.
	Base  string `json:"base"`
	Tools string `json:"tools"`
	// Requirements are the lines of Normalise.
	Requirements []string `json:"requirements"`
	AllowBuilds  bool     `json:"allow_builds"`
	// Env are the variables of uv and pip. The Driver puts its own proxy in the place of the proxies that they name, and uses those itself.
	Env map[string]string `json:"env"`
	// Sources are the endpoints ("host:port") of package sources. They are reached whatever their addresses are.
	Sources []string `json:"sources"`
	// Closed are prefixes of addresses that are not public. Nothing is fetched from them but from Sources.
	Closed []string `json:"closed"`
}

// DriverOutcome is the Driver's standard output. If Failed and Python are empty, the Driver itself failed.
type DriverOutcome struct {
	// Failed is the step that failed: tool (there is no installer), venv or install.
	Failed string
	// Refused is the first endpoint from which the Driver refused to fetch; empty if there was none.
	Refused string
	// Python is the interpreter of the environment, Version its full version.
	Python, Version string
	// Tool is what installed the requirements.
	Tool string
	// Requirements is what was installed, sorted.
	Requirements []string
}
