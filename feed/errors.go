package feed

import (
	"errors"
	"time"
)

// ErrPermanent is matched by errors that a retry will not cure soon: the
// feed breaks its specification, the topic belongs to another feed, the
// checkpoint is gone, the configuration is refused. A bridge reports such an
// error and retries slowly, in case a person removes the cause; it never
// skips data to continue. All other errors are transient.
var ErrPermanent = errors.New("permanent error")

// ErrNotRequested is matched by errors of a source that made no request, because upstream had asked
// to wait. They say nothing about the feed, so a bridge reports the error before them if a person
// has to act on that.
var ErrNotRequested = errors.New("not requested")

// Permanent returns an error with the text of err that matches [ErrPermanent] and err. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

type permanent struct{ err error }

func (p *permanent) Error() string        { return p.err.Error() }
func (p *permanent) Unwrap() error        { return p.err }
func (p *permanent) Is(target error) bool { return target == ErrPermanent }

// RetryAfter returns an error with the text of err that matches err, and for which [RetryDelay]
// returns delay. Sources use it if upstream asks for a pause, as by a Retry-After header.
// Without a delay, RetryAfter returns err.
func RetryAfter(err error, delay time.Duration) error {
	if delay <= 0 {
		return err
	}
	return &retryError{err, delay}
}

// RetryDelay returns the shortest time to wait before a retry after err: the delay of the
// outermost [RetryAfter], or zero.
func RetryDelay(err error) time.Duration {
	if retry, ok := errors.AsType[*retryError](err); ok {
		return retry.delay
	}
	return 0
}

type retryError struct {
	err   error
	delay time.Duration
}

func (r *retryError) Error() string { return r.err.Error() }
func (r *retryError) Unwrap() error { return r.err }
