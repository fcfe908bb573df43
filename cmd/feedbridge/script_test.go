package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/feedbridge/feedbridge/internal/testkit/freeport"
)

// TestScripts runs the scripts in testdata/script, which use the program on the command line. A
// script has the commands of testscript, those of the program, and these:
//
//	upstream VAR LENGTH         serve a feed of that length; VAR gets its URL, and
//	                            VAR_ADDR its host and port
//	grow VAR LENGTH             let it grow
//	site VAR DIR                serve the files of a directory; VAR gets its URL
//	spoil VAR WHAT              break it, or heal it; see faults
//	port VAR                    VAR gets 127.0.0.1 and a port that is free
//	exits CODE COMMAND          run it, and look at its exit code
//	start NAME [K=V] COMMAND    start a process; its output is in NAME.out and NAME.err
//	signal NAME SIGNAL          INT, TERM, KILL, HUP, STOP or CONT; with a third word,
//	                            again and again until the process has ended
//	ends NAME CODE              wait for its end, and look at its exit code
//	typed PAGE SECTION OLD NEW  run the commands that a section of a document shows, with
//	                            each URL OLD replaced by NEW; run is started as daemon
//	written PAGE SECTION OLD NEW
//	                            write the configurations that a section shows to their files
//	await WHERE REGEXP [VAR]    wait until a file or a URL has what matches; VAR gets
//	                            the first group
//	messages BUS TOPIC FILE     write the operations and IDs of the messages to a file
//	holds BUS TOPIC FILE        compare the messages with the lines that tail has printed;
//	                            BUS is a NATS server's URL, or kafka://host:port
//
// Nothing in a script waits for a time: it waits for what it needs, and fails
// when that has not come within patience.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               func(env *testscript.Env) error { return newStage(env) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"upstream": upstream,
			"grow":     grow,
			"site":     site,
			"spoil":    spoil,
			"port":     port,
			"exits":    exits,
			"start":    start,
			"signal":   sendSignal,
			"ends":     ends,
			"typed":    typed,
			"written":  written,
			"await":    await,
			"messages": listMessages,
			"publish":  publish,
			"holds":    holds,
		},
	})
}

// patience limits how long a script waits for a condition, on a busy machine.
const patience = 3 * time.Minute

// stage is the environment of a script. A script runs in one goroutine.
type stage struct {
	environ   []string
	upstreams map[string]*upstreamFeed
	processes map[string]*process
}

type stageKey struct{}

func newStage(env *testscript.Env) error {
	// A program with the race detector in it waits for a second when it exits.
	env.Setenv("GORACE", "atexit_sleep_ms=20")
	s := &stage{environ: env.Vars, upstreams: map[string]*upstreamFeed{}, processes: map[string]*process{}}
	env.Values[stageKey{}] = s
	env.Defer(s.strike)
	return nil
}

// strike ends all that the script has started.
func (s *stage) strike() {
	for _, p := range s.processes {
		p.kill()
	}
	for _, u := range s.upstreams {
		u.server.CloseClientConnections()
		u.server.Close()
	}
}

func stageOf(ts *testscript.TestScript) *stage { return ts.Value(stageKey{}).(*stage) }

// want checks how a command is called.
func want(ts *testscript.TestScript, neg bool, args []string, least, most int) {
	if neg || len(args) < least || len(args) > most {
		ts.Fatalf("wrong use: see TestScripts")
	}
}

func port(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 1, 1)
	addr, err := freePort()
	ts.Check(err)
	ts.Setenv(args[0], addr)
}

// freePort returns 127.0.0.1 and a port that is reserved, also while its server is stopped.
func freePort() (string, error) {
	port, err := freeport.Reserve()
	return fmt.Sprintf("127.0.0.1:%d", port), err
}

func await(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 2, 3)
	where := args[0]
	pattern, err := regexp.Compile("(?ms)" + args[1])
	ts.Check(err)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); ; <-ticker.C {
		text, err := lookAt(ts, where)
		if found := pattern.FindStringSubmatch(text); err == nil && found != nil {
			if len(args) == 3 {
				ts.Setenv(args[2], found[1])
			}
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s did not come to match %s within %v: %v\n%s", where, args[1], patience, err, text)
		}
	}
}

// lookAt returns the current content of a URL or a file.
func lookAt(ts *testscript.TestScript, where string) (string, error) {
	if !regexp.MustCompile(`^https?://`).MatchString(where) {
		data, err := os.ReadFile(ts.MkAbs(where))
		return string(data), err
	}
	client := http.Client{Timeout: patience}
	resp, err := client.Get(where)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return string(data), err
}
