package plugin

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

const (
	// maxLogLine is where a log line is cut in two.
	maxLogLine = 64 << 10
	// maxTail is how much of what a plugin wrote besides its log is kept for the error when it does not start.
	maxTail = 4 << 10
)

// logPump takes a plugin's stderr into our log: slog's and hclog's JSON lines at their level, other lines at debug, a
// Go panic and what follows at error. It trusts nothing that it reads.
type logPump struct {
	log  *slog.Logger
	done chan struct{}

	mu   sync.Mutex
	tail []byte
}

func newLogPump(log *slog.Logger) *logPump {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &logPump{log: log, done: make(chan struct{})}
}

// pump reads r to its end and closes it.
func (p *logPump) pump(r io.ReadCloser) {
	defer close(p.done)
	defer func() { _ = r.Close() }()
	reader := bufio.NewReaderSize(r, maxLogLine)
	panicking := false
	for {
		line, _, err := reader.ReadLine()
		if err != nil {
			return
		}
		if level, msg, attrs, ok := parseLine(line); ok {
			p.log.LogAttrs(context.Background(), level, msg, attrs...)
			continue
		}
		p.keep(line)
		text := strings.ToValidUTF8(string(line), "\uFFFD")
		panicking = panicking || strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ")
		level := slog.LevelDebug
		if panicking {
			level = slog.LevelError
		}
		p.log.LogAttrs(context.Background(), level, "plugin wrote", slog.String("line", text))
	}
}

func (p *logPump) keep(line []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tail = append(append(p.tail, line...), '\n')
	if cut := len(p.tail) - maxTail; cut > 0 {
		p.tail = slices.Clone(p.tail[cut:])
	}
}

// text is the end of what was written besides the log.
func (p *logPump) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(p.tail), "\uFFFD"))
}

// parseLine reads a JSON log line.
func parseLine(line []byte) (slog.Level, string, []slog.Attr, bool) {
	var fields map[string]any
	if len(line) == 0 || line[0] != '{' || json.Unmarshal(line, &fields) != nil {
		return 0, "", nil, false
	}
	level, okLevel := take(fields, "level", "@level")
	msg, okMsg := take(fields, "msg", "@message")
	if !okLevel || !okMsg {
		return 0, "", nil, false
	}
	take(fields, "time", "@timestamp")
	take(fields, "@module")
	attrs := make([]slog.Attr, 0, len(fields))
	for key, value := range fields {
		attrs = append(attrs, slog.Any(key, value))
	}
	slices.SortFunc(attrs, func(a, b slog.Attr) int { return strings.Compare(a.Key, b.Key) })
	return levelOf(level), msg, attrs, true
}

// take removes the first of names from fields; it must be a string.
func take(fields map[string]any, names ...string) (string, bool) {
	for _, name := range names {
		if s, ok := fields[name].(string); ok {
			delete(fields, name)
			return s, true
		}
	}
	return "", false
}

func levelOf(name string) slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(name)); err == nil {
		return level
	}
	return slog.LevelDebug // hclog's trace, and what nobody knows
}
