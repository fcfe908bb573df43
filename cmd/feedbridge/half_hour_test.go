//go:build linux || darwin

package main

import (
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/feedbridge/feedbridge/internal/testkit/logbuffer"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
)

// TestFirstHalfHour types each command of README, of getting started, and of the output of the program, in an empty
// directory: piped, and on a terminal of 40 columns. It does not run in parallel, as the ports of the demo are fixed.
func TestFirstHalfHour(t *testing.T) {
	readme, started := readDoc(t, "README.md"), readDoc(t, "docs/getting-started.md")
	started, _, _ = strings.Cut(started, "\n## 4. ") // it needs the demo's ports; the script first_steps types it
	for name, small := range map[string]bool{"piped": false, "on a small terminal": true} {
		t.Run(name, func(t *testing.T) {
			n := &newcomer{t: t, dir: t.TempDir(), small: small, at: map[string]string{"--wait 10s": "--wait 3m"}}
			program, err := os.Executable()
			must.Succeed(t, errors.Join(err, os.Symlink(program, filepath.Join(n.dir, "feedbridge"))))
			feed := samplefeed.New(samplefeed.Options{PageSize: 10, Entity: samplefeed.Sized(100)})
			feed.SetLen(35)
			upstream := httptest.NewServer(feed)
			defer upstream.Close()
			n.at["https://github.com/nats-io/nats-server/releases.atom"] = upstream.URL + "/feed/latest"
			for _, addr := range []string{"127.0.0.1:9322", "127.0.0.1:9323"} {
				n.at[addr], err = freePort()
				must.Succeed(t, err)
			}

			demo := n.start("./feedbridge demo")
			for addr, line := range map[string]string{
				"127.0.0.1:8055": `the feed +http://([^/]+)/`, "127.0.0.1:4222": `the topic +orders, on nats://(\S+)`,
				"127.0.0.1:9321": `the status +http://([^/]+)/ in a browser`,
			} {
				n.at[addr] = n.await(demo, line)
			}
			n.await(demo, `caught up|"caught_up":true`)
			_, shown, _ := strings.Cut(readme, "$ ./feedbridge demo\n")
			shown, _, _ = strings.Cut(shown, "```")
			if !strings.Contains(strings.ReplaceAll(demo.String(), "\r", ""), shown) {
				t.Errorf("README shows another output of the demo than %q", demo.String())
			}
			n.paste(demo, 6)
			n.follow(readme)
			n.follow(started)
			n.interrupt()
		})
	}
}

func readDoc(t *testing.T, name string) string {
	text, err := os.ReadFile(filepath.Join("..", "..", name))
	must.Succeed(t, err)
	return string(text)
}

// newcomer types commands in a directory that has only the program.
type newcomer struct {
	t   *testing.T
	dir string
	// small means that the terminal has 40 columns and 10 lines. Otherwise output is piped.
	small bool
	// at has what is used in place of addresses and times in the documents.
	at map[string]string
	// stop interrupts the daemons.
	stop []func() error
}

// here returns a text of the documents with the addresses of this newcomer.
func (n *newcomer) here(text string) string {
	var pairs []string
	for in, used := range n.at {
		pairs = append(pairs, in, used)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// command starts a command. wait returns its error.
func (n *newcomer) command(text string) (out *logbuffer.Buffer, cmd *exec.Cmd, wait func() error) {
	n.t.Helper()
	cmd = exec.Command("sh", "-c", "exec "+n.here(text))
	cmd.Dir = n.dir
	cmd.Env = []string{testMainRole + "=feedbridge", "TERM=xterm", "HOME=" + n.dir, "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=20"}
	out = &logbuffer.Buffer{}
	if !n.small {
		cmd.Stdout, cmd.Stderr = out, out
		must.Succeed(n.t, cmd.Start())
		return out, cmd, cmd.Wait
	}
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 10, Cols: 40})
	must.Succeed(n.t, err)
	var copying sync.WaitGroup
	copying.Go(func() { _, _ = io.Copy(out, terminal) }) // until the process has ended
	return out, cmd, func() error {
		err := cmd.Wait()
		copying.Wait()
		return errors.Join(err, terminal.Close())
	}
}

// run runs a command, and fails the test unless it exits with 0.
func (n *newcomer) run(text string) {
	n.t.Helper()
	out, _, wait := n.command(text)
	if err := wait(); err != nil {
		n.t.Errorf("%s: %v\n%s", n.here(text), err, out.String())
	}
}

// start starts a daemon.
func (n *newcomer) start(text string) *logbuffer.Buffer {
	out, cmd, wait := n.command(text)
	n.stop = append(n.stop, func() error {
		_ = cmd.Process.Signal(os.Interrupt) // it may have failed
		return wait()
	})
	n.t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
	return out
}

// interrupt stops the daemons, of which each exits with 0.
func (n *newcomer) interrupt() {
	for _, stop := range n.stop {
		must.Succeed(n.t, stop())
	}
}

// await waits until out has what matches, and returns the last group.
func (n *newcomer) await(out *logbuffer.Buffer, pattern string) string {
	n.t.Helper()
	re := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if m := re.FindStringSubmatch(out.String()); m != nil {
			return m[len(m)-1]
		}
	}
	n.t.Fatalf("no %s in:\n%s", pattern, out.String())
	return ""
}

// awaitReady waits until the daemon with these flags has read its feeds.
func (n *newcomer) awaitReady(flags string) {
	n.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if _, _, wait := n.command("./feedbridge status --quiet " + flags); wait() == nil {
			return
		}
	}
	n.t.Fatalf("the daemon with %s is not ready", flags)
}

// paste runs the lines that a daemon has printed for that, of which there are as many as want.
func (n *newcomer) paste(out *logbuffer.Buffer, want int) {
	n.t.Helper()
	lines := regexp.MustCompile(`(?m)^  (\./feedbridge [^\r\n]*)`).FindAllStringSubmatch(out.String(), -1)
	if len(lines) != want {
		n.t.Errorf("%d lines to paste, want %d, in:\n%s", len(lines), want, out.String())
	}
	for _, line := range lines {
		n.run(line[1])
	}
}

// follow saves the files of a page, and runs its commands.
func (n *newcomer) follow(page string) {
	for _, file := range regexp.MustCompile("(?s)save this as `([^`]+)`:\n\n```yaml\n(.*?)```").FindAllStringSubmatch(page, -1) {
		must.Succeed(n.t, os.WriteFile(filepath.Join(n.dir, file[1]), []byte(n.here(file[2])), 0o600))
	}
	commands := regexp.MustCompile(`(?m)^\$ (.*)$`).FindAllStringSubmatch(page, -1)
	if len(commands) < 3 {
		n.t.Errorf("only the commands %q were found", commands)
	}
	for _, m := range commands {
		switch command := m[1]; {
		case regexp.MustCompile(`^(CGO_ENABLED=0 )?go build \./cmd/feedbridge( |$)`).MatchString(command), command == "./feedbridge demo":
			// The program is there, and the demo runs.
		case strings.HasPrefix(command, "./feedbridge run http"):
			out := n.start(command)
			n.await(out, `published`)
			if n.small { // piped, the log has the lines
				n.paste(out, 3)
			}
		case strings.HasPrefix(command, "./feedbridge run "):
			out := n.start(command)
			n.await(out, `feedbridge is up`)
			n.awaitReady(strings.TrimPrefix(command, "./feedbridge run "))
		default:
			n.run(command)
		}
	}
}
