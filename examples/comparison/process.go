//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
)

// restartDelay is how long a program is down after it ended, as under a supervisor.
const restartDelay = 500 * time.Millisecond

// A process is a program that is started again whenever it ends, until it is stopped.
type process struct {
	command func() *exec.Cmd
	log     *os.File

	mu      sync.Mutex
	running *exec.Cmd
	paused  bool
	stopped bool
	ended   chan struct{}

	cpu time.Duration // user and system time of all runs that have ended
}

func startProcess(logPath string, command func() *exec.Cmd) (*process, error) {
	log, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	p := &process{command: command, log: log, ended: make(chan struct{})}
	if err := p.start(); err != nil {
		return nil, err
	}
	go p.supervise()
	return p, nil
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped || p.paused {
		return nil
	}
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p.running = cmd
	return nil
}

func (p *process) supervise() {
	defer close(p.ended)
	for {
		p.mu.Lock()
		cmd, stopped := p.running, p.stopped
		p.mu.Unlock()
		if cmd != nil {
			_ = cmd.Wait() // it was killed
			p.mu.Lock()
			p.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			p.running, stopped = nil, p.stopped
			p.mu.Unlock()
		}
		if stopped {
			return
		}
		<-time.After(restartDelay)
		if err := p.start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// kill sends SIGKILL to the process.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running != nil {
		_ = p.running.Process.Kill()
	}
}

// pause kills the process, and does not start it again until resume.
func (p *process) pause() {
	p.mu.Lock()
	p.paused = true
	p.mu.Unlock()
	p.kill()
}

func (p *process) resume() {
	p.mu.Lock()
	p.paused = false
	p.mu.Unlock()
}

// stop kills the process for good, and waits for its end.
func (p *process) stop() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.kill()
	<-p.ended
	_ = p.log.Close()
}
