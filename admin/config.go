package admin

import "time"

// configState is the configuration that is in use.
type configState struct {
	loadedAt time.Time
	// err is why a newer configuration was refused, at failedAt; nil if none was.
	err      error
	failedAt time.Time
}

// ConfigLoaded records an attempt to load the configuration again. If err is not nil the one
// before stays in use.
func (s *Server) ConfigLoaded(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config.err = err
	if err == nil {
		s.config.loadedAt = time.Now()
	} else {
		s.config.failedAt = time.Now()
	}
}

func (s *Server) configState() configState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// configStatus is the part of /status about the configuration.
type configStatus struct {
	LoadedAt *time.Time   `json:"loaded_at"`
	Error    *errorStatus `json:"error"` // of a newer one that was refused
}

func (s *Server) configStatus() configStatus {
	state := s.configState()
	shown := configStatus{LoadedAt: formatTime(state.loadedAt)}
	if state.err != nil {
		shown.Error = &errorStatus{formatTime(state.failedAt), s.opts.Redact.Clip(state.err.Error(), longestError)}
	}
	return shown
}
