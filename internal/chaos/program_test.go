//go:build chaos && linux

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// program is one copy of feedbridge. All copies of a scenario have the same
// configuration but for the address of their status, and for the feeds that it lacks for a time.
type program struct {
	name    string
	config  string
	address string // of its status
	socket  string // for changes; empty if they are made on the bus
	fleet   bool   // it shares the feeds with the other copies

	mu    sync.Mutex // is held while a fault is injected into the copy
	run   *process
	lacks map[*feed]bool // feeds that its configuration does not have
	up    atomic.Bool    // it runs and is not frozen
}

func newProgram(scenario string, number int) (*program, error) {
	port, err := freePort("127.0.0.1")
	name := fmt.Sprintf("copy%d", number)
	p := &program{name: name, config: chaosDir(scenario, name+".yaml"), address: fmt.Sprintf("127.0.0.1:%d", port)}
	if number > 1 {
		p.socket = chaosDir(scenario, name+".sock")
	}
	return p, err
}

// configure writes the configuration. It is read at the next start.
func (p *program) configure(b bus, feeds []*feed) error {
	var text strings.Builder
	if p.fleet {
		text.WriteString("fleet: {name: chaos}\n")
	}
	fmt.Fprintf(&text, "log: {format: text}\nadmin: {listen: %q, socket: %q}\nbuses:\n  main:\n    %s\nfeeds:\n", p.address, p.socket, b.configure())
	for _, f := range feeds {
		if p.lacks[f] {
			continue
		}
		oversize := "stop"
		if f.deadLetters {
			oversize = "dead-letter"
		}
		fmt.Fprintf(&text, "  %s:\n    url: %s\n    every: 200ms\n    oversize: %s\n    limits: {rate: 1000}\n    to: {%s}\n", f.name, f.url, oversize, b.configureTopic(f))
		if _, err := os.Stat(p.token(f)); err != nil {
			if err := p.writeToken(f); err != nil {
				return err
			}
		}
		fmt.Fprintf(&text, "    auth: {bearer: %q}\n", "file:"+p.token(f))
		if f.repeats {
			fmt.Fprintf(&text, "    dedupe_window: %d\n", smallWindow)
		}
		if f.format == jsonFeed {
			text.WriteString("    body: source\n")
		}
		if f.startNow {
			text.WriteString("    start: now\n")
		}
	}
	return os.WriteFile(p.config, []byte(text.String()), 0o600)
}

// token is the file with the token of a feed, which the copy reads for each request. Its content is token.
func (p *program) token(f *feed) string { return p.config + "." + f.name + ".token" }

const token = "any\n"

func (p *program) writeToken(f *feed) error {
	path := p.token(f)
	return errors.Join(os.WriteFile(path+".new", []byte(token), 0o600), os.Rename(path+".new", path))
}

func (p *program) start() error {
	var err error
	p.run, err = startLogged(exec.Command(chaosDir("feedbridge"), "run", "-c", p.config), p.log())
	p.up.Store(err == nil)
	return err
}

// kill kills the copy. A copy that has ended by itself is a defect.
func (p *program) kill() error {
	p.up.Store(false)
	if p.run.ended() {
		return fmt.Errorf("%s ended by itself: %w", p.name, p.run.err)
	}
	p.run.kill()
	return nil
}

func (p *program) freeze() {
	p.up.Store(false)
	p.run.signal(syscall.SIGSTOP)
}

func (p *program) thaw() {
	p.run.signal(syscall.SIGCONT)
	p.up.Store(true)
}

// commandTimeout limits a command. The bus may be away.
const commandTimeout = 20 * time.Second

// checkpoint runs "feedbridge checkpoint" and returns its output.
func (p *program) checkpoint(ctx context.Context, args ...string) ([]byte, error) {
	return p.command(ctx, append([]string{"checkpoint", args[0], "-c", p.config}, args[1:]...)...)
}

// setPaused runs "feedbridge pause" or "feedbridge resume".
func (p *program) setPaused(ctx context.Context, f *feed, paused bool) error {
	command := "resume"
	if paused {
		command = "pause"
	}
	_, err := p.command(ctx, command, "-c", p.config, f.name)
	return err
}

// command runs the program with args and returns its output.
func (p *program) command(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, chaosDir("feedbridge"), args...)
	cmd.Env = environment()
	out, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Output wraps it in nothing
		err = fmt.Errorf("%q: %w: %s", args, err, exit.Stderr)
	}
	return out, err
}

// cursor returns the position of a feed.
func (p *program) cursor(ctx context.Context, f *feed) (string, error) {
	out, err := p.checkpoint(ctx, "show", "--json", f.name)
	if err != nil {
		return "", err
	}
	var position struct{ Cursor string }
	if err := json.Unmarshal(out, &position); err != nil {
		return "", err
	}
	return position.Cursor, nil
}

// answers reports whether the copy serves its status.
func (p *program) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return getJSON(ctx, "http://"+p.address+"/status", new(struct{})) == nil
}

// unknownFeed explains a feed that a copy's configuration does not have.
const unknownFeed = "it does not know the feed"

// feedStatus is what the status of a copy has of a feed.
type feedStatus struct {
	Feed, State, Explanation, Owner string
	CommitsBy                       string `json:"commits_by"`
}

// status returns the copy's status of a feed.
func (p *program) status(ctx context.Context, f *feed) (feedStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var status struct{ Feeds []feedStatus }
	if err := getJSON(ctx, "http://"+p.address+"/status", &status); err != nil {
		return feedStatus{}, err
	}
	for _, s := range status.Feeds {
		if s.Feed == f.name {
			return s, nil
		}
	}
	return feedStatus{}, errors.New(unknownFeed)
}

// explain returns the copy's explanation of a feed's state.
func (p *program) explain(ctx context.Context, f *feed) string {
	s, err := p.status(ctx, f)
	if err != nil {
		return err.Error()
	}
	return s.State + ": " + s.Explanation
}

// log is the path of the log.
func (p *program) log() string { return filepath.Join(filepath.Dir(p.config), p.name+".log") }
