package drivers

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/python-executor/python-executor/core/executor"
)

//go:embed shell/bash.sh
var bashDriver string

//go:embed shell/sh.sh
var shDriver string

// What the shells run first: it reads the driver from the control channel.
const (
	bashBoot = `IFS= read -r -d '' -u 3 PROMPT_COMMAND; eval "$PROMPT_COMMAND"`
	shBoot   = `IFS= read -r __pyexec_op <&3; eval "$(printf %b "$__pyexec_op")"`
)

//go:embed javascript/control.js
var javascriptControl string

//go:embed javascript/realm.js
var javascriptRealm string

//go:embed javascript/cells.js
var javascriptCells string

// javascriptBoot runs the driver, which gets import() from here: a script with a place to import from.
const javascriptBoot = `{const fs=require('fs'),take=n=>{const b=Buffer.alloc(n);for(let i=0;i<n;)i+=fs.readSync(3,b,i,n-i);return b.toString()};` +
	`require('vm').runInThisContext('(function(require,load){'+take(+take(8))+'\n})',{filename:'<python-executor>'})(require,(s,o)=>import(s,o))}`

//go:embed python/control.py
var pythonControl string

//go:embed python/display.py
var pythonDisplay string

//go:embed python/modules.py
var pythonModules string

//go:embed python/magics.py
var pythonMagics string

//go:embed python/code.py
var pythonCode string

//go:embed python/trace.py
var pythonTrace string

//go:embed python/cells.py
var pythonCells string

// pythonBoot reads the driver from the control channel and runs it in a namespace of its own: __main__ is the user's, and
// builtins that the user deletes stay the driver's.
const pythonBoot = `import os;n=int(os.read(3,8));b=b''
while len(b)<n:b+=os.read(3,n-len(b))
exec(compile(b,'<python-executor>','exec'),{'__name__':'_python_executor','__builtins__':dict(__builtins__.__dict__)})`

// Driver is one language's.
type Driver struct {
	// Command is the argv that follows the interpreter's.
	Command []string
	// First is what the interpreter reads from the control channel before any operation.
	First []byte
	// Variables and Paths report whether the driver has those operations.
	Variables, Paths bool
	// ExitEnds reports whether the interpreter's exit ends the cell, after which the interpreter is started again.
	ExitEnds bool
	// Begins reports whether the driver sends begun. An interrupt before that would be lost, or hit the driver.
	Begins bool
	// Signal interrupts a cell.
	Signal syscall.Signal
	// Hears reports whether the driver sends heard when an interrupt has reached the cell. Until then it may be sent again.
	Hears bool
	// Told reports whether the driver has the operation interrupt. It then gets no signal.
	Told bool
	// Env is set for the interpreter only.
	Env    map[string]string
	fields fieldForm
}

// fieldForm is how a shell is told an operation.
type fieldForm int

const (
	jsonLine fieldForm = iota
	zeroEnded
	escapedLines
)

// For returns the driver of a language for an interpreter, whose file's name matters where there are several kinds.
func For(language executor.Language, interpreter []string) (Driver, error) {
	if len(interpreter) == 0 {
		return Driver{}, fmt.Errorf("interpreter: must be given")
	}
	switch language {
	case executor.LanguageDefault, executor.LanguagePython:
		return Driver{Command: []string{"-c", pythonBoot}, First: counted(pythonControl + pythonDisplay + pythonModules + pythonMagics + pythonCode + pythonTrace + pythonCells), Variables: true, Paths: true, Begins: true, Signal: 63, Hears: true}, nil
	case executor.LanguageJavaScript:
		// Without the checks code that is terminated in a timer does not end Node.
		return Driver{
			Command: []string{"--no-force-async-hooks-checks", "-e", javascriptBoot}, First: counted(javascriptControl + javascriptRealm + javascriptCells), Variables: true, Told: true,
		}, nil
	case executor.LanguageShell:
		if strings.Contains(path.Base(interpreter[0]), "bash") {
			return Driver{
				Command: []string{"--noprofile", "--norc", "-i"}, First: append([]byte(bashDriver), 0), fields: zeroEnded, Begins: true, Signal: syscall.SIGINT,
				Env: map[string]string{"PROMPT_COMMAND": bashBoot, "PS1": ""},
			}, nil
		}
		return Driver{Command: []string{"-c", shBoot}, First: append([]byte(escape(shDriver)), '\n'), fields: escapedLines, Signal: syscall.SIGINT, ExitEnds: true}, nil
	default:
		return Driver{}, fmt.Errorf("unknown language %q", language)
	}
}

// counted is text behind its length in eight digits.
func counted(text string) []byte {
	return slices.Concat(fmt.Appendf(nil, "%08d", len(text)), []byte(text))
}

// Operation is what a driver is asked to do.
type Operation struct {
	Op string `json:"op"`
	// N numbers the operations of an interpreter, Count the cells of a session.
	N     int64  `json:"n"`
	Count int64  `json:"count,omitempty"`
	Code  string `json:"code,omitempty"`
	Stdin string `json:"stdin,omitempty"`
	Dir   string `json:"dir,omitempty"`
	// Of start.
	Paths       []string `json:"paths,omitempty"`
	Preload     []string `json:"preload,omitempty"`
	MaxData     int      `json:"max_data,omitempty"`
	MaxDisplays int      `json:"max_displays,omitempty"`
}

// Encode returns o as this driver reads it.
func (d Driver) Encode(o Operation) ([]byte, error) {
	if d.fields == jsonLine {
		raw, err := json.Marshal(o)
		return append(raw, '\n'), err
	}
	var b []byte
	for _, field := range []string{o.Op, strconv.FormatInt(o.N, 10), strconv.FormatInt(o.Count, 10), o.Stdin, o.Code} {
		if strings.ContainsRune(field, 0) {
			return nil, fmt.Errorf("must not contain a zero byte")
		}
		if d.fields == escapedLines {
			b = append(append(b, escape(field)...), '\n')
			continue
		}
		b = append(append(b, field...), 0)
	}
	return b, nil
}

// Answer is what a driver says.
type Answer struct {
	Op        string          `json:"op"`
	N         int64           `json:"n"`
	Code      int             `json:"code"`
	Dropped   int64           `json:"dropped"`
	Version   string          `json:"version"`
	Display   json.RawMessage `json:"display"`
	Variables json.RawMessage `json:"variables"`
}

// escape writes text in one line, as printf's %b reads it.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(text)
}
