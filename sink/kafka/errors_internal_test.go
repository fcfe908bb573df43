package kafka

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// A member of a fleet gets this error about its consumer group.
func TestMissingCoordinatorIsNotNecessarilyThatOfATransaction(t *testing.T) {
	t.Parallel()
	err := newDiagnosis(Config{}, nil).explainError(t.Context(), kerr.CoordinatorNotAvailable)
	if err == nil || !strings.Contains(err.Error(), "no coordinator yet for this transactional id or consumer group") {
		t.Errorf("error %v does not name both kinds of coordinators", err)
	}
}
