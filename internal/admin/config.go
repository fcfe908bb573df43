package admin

import (
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/safetext"
)

// configHistory is about the configuration that is in use.
type configHistory struct {
	mu       sync.Mutex // protects the fields below
	loadedAt time.Time
	// err is why a newer configuration was refused, at failedAt; nil if none was.
	err      error
	failedAt time.Time
}

// record records an attempt to load the configuration.
func (c *configHistory) record(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	if err == nil {
		c.loadedAt = time.Now()
	} else {
		c.failedAt = time.Now()
	}
}

func (c *configHistory) status(redact *safetext.Redactor) status.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	shown := status.Config{LoadedAt: formatTime(c.loadedAt)}
	if c.err != nil {
		shown.Error = &status.Error{At: formatTime(c.failedAt), Text: redact.Clip(c.err.Error(), longestError)}
	}
	return shown
}
