//go:build integration

package kafka_test

import (
	"os"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }
