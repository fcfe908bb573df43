package serve

import (
	"errors"
	"net/http"
	"time"
)

// Snapshot says how snapshots are built.
type Snapshot struct {
	Every time.Duration
}

func (s Snapshot) validate() []error { return nil }

type snapshots struct{ f *Feed }

func newSnapshots(f *Feed) *snapshots { return &snapshots{f} }

func (s *snapshots) serve(http.ResponseWriter, *http.Request, string, string) error {
	return errors.New("TODO")
}

func (f *Feed) subscription(w http.ResponseWriter, r *http.Request, base string) error {
	return errors.New("TODO")
}
