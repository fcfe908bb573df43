package bridge

import (
	"sync"
	"time"
)

// stepper calls step whenever its wait is over or the stepper is woken, one call at a time.
// Each series of steps without a wait has a goroutine. During a wait there is none, so ten
// thousand feeds that wait have ten thousand timers, and no stacks.
type stepper struct {
	mu sync.Mutex
	// step returns after how long it is to be called again, or false after the last call. It
	// may be called early. It is nil before the first call and after the last one.
	step    func() (wait time.Duration, more bool)
	running bool        // a goroutine calls step
	woken   bool        // wake was called meanwhile
	timer   *time.Timer // nil before the first wait
}

// start makes the first step begin. ended is called after the last one.
func (s *stepper) start(step func() (wait time.Duration, more bool), ended func()) {
	s.mu.Lock()
	s.step = func() (time.Duration, bool) {
		wait, more := step()
		if !more {
			s.end()
			ended()
		}
		return wait, more
	}
	s.mu.Unlock()
	s.wake()
}

func (s *stepper) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step, s.running, s.woken = nil, false, false
}

// wake makes the next step begin now, or after the present one. It does nothing before the first
// step and after the last one. Any goroutine may call it.
func (s *stepper) wake() {
	if step := s.begin(); step != nil {
		go s.run(step)
	}
}

// begin returns the step if the caller is to call run, and nil otherwise.
func (s *stepper) begin() (step func() (time.Duration, bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.step == nil:
		return nil
	case s.running:
		s.woken = true
		return nil
	}
	s.running = true
	if s.timer != nil {
		s.timer.Stop()
	}
	return s.step
}

// run calls step until it has to wait.
func (s *stepper) run(step func() (time.Duration, bool)) {
	for {
		wait, more := step()
		if !more || s.startWait(wait) {
			return
		}
	}
}

// startWait starts the wait before the next step. It returns false if there is none.
func (s *stepper) startWait(wait time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.woken || wait <= 0 {
		s.woken = false
		return false
	}
	s.running = false
	if s.timer != nil {
		s.timer.Reset(wait)
		return true
	}
	s.timer = time.AfterFunc(wait, func() {
		if step := s.begin(); step != nil {
			s.run(step)
		}
	})
	return true
}
