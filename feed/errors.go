package feed

import "errors"

// ErrPermanent is matched by errors that trying again soon will not cure: the
// feed breaks its specification, the topic belongs to another feed, the
// checkpoint is gone, the configuration is refused. A bridge reports such an
// error and tries again slowly, in case a person mends the cause; it never
// skips data to get past it. Every other error is taken for transient.
var ErrPermanent = errors.New("permanent error")

// Permanent marks err, whose text stays as it is, so that it matches
// [ErrPermanent]. Permanent(nil) is nil.
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
