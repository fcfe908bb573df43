package feed

import "errors"

// ErrPermanent is matched by errors that a retry will not cure soon: the
// feed breaks its specification, the topic belongs to another feed, the
// checkpoint is gone, the configuration is refused. A bridge reports such an
// error and retries slowly, in case a person removes the cause; it never
// skips data to continue. All other errors are transient.
var ErrPermanent = errors.New("permanent error")

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
