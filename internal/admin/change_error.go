package admin

import "errors"

// ChangeError is an error of a [Change]. Nothing was changed, except perhaps by a pause or its
// end that the bus did not acknowledge; repeating it does no harm.
type ChangeError struct {
	// Status is the HTTP status of the answer.
	Status int
	// Errs are the errors; each has its cure.
	Errs []error
}

func (e *ChangeError) Error() string   { return errors.Join(e.Errs...).Error() }
func (e *ChangeError) Unwrap() []error { return e.Errs }

// changeErrors is the answer to a change that failed.
type changeErrors struct {
	Errors []string `json:"errors"`
}
