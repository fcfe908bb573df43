package nats

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/feedbridge/feedbridge/feed"
)

// The embedded server sets the limits from the free space of its disk: nobody can raise them.
func TestFullServerNamesItsCure(t *testing.T) {
	t.Parallel()
	for code, standard := range map[jetstream.ErrorCode]string{
		codeAccountResources: "no room (NATS error 10002); raise the account's JetStream limits",
		codeInsufficient:     "no room (NATS error 10023); raise the server's JetStream limits",
		codeStorageResources: "no room (NATS error 10047); raise the server's JetStream limits",
	} {
		answer := &jetstream.APIError{ErrorCode: code, Description: "no room"}
		if err := apiError(answer, "S", Config{}); err.Error() != standard || !errors.Is(err, feed.ErrPermanent) {
			t.Errorf("got %v, want %s", err, standard)
		}
		if err := apiError(answer, "S", Config{FullCure: "the disk is full"}); err.Error() != "the disk is full (NATS error "+standard[20:25]+")" || !errors.Is(err, feed.ErrPermanent) {
			t.Errorf("with a cure: %v", err)
		}
	}
}
