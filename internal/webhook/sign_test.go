package webhook

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The example that the Standard Webhooks specification gives.
func TestSignature(t *testing.T) {
	t.Parallel()
	secrets, err := Secrets([]byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"))
	require.NoError(t, err)
	body := []byte(`{"test": 2432232314}`)
	assert.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", sign(secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), body))

	secrets, err = Secrets([]byte("whsec_" + strings.Repeat("A", 32) + "\n\nwhsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
	require.NoError(t, err)
	both := strings.Fields(sign(secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), body))
	require.Len(t, both, 2)
	assert.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", both[1])
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                   "no secret in it",
		" \n\n":                              "no secret in it",
		"hunter2":                            "line 1 is no secret",
		"whsec_aGk=":                         "line 1 is no secret",
		"whsec_!":                            "line 1 is no secret",
		"\nMfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": "line 2 is no secret",
		"whsec_" + strings.Repeat("A", 100):  "line 1 is no secret",
	} {
		_, err := Secrets([]byte(text))
		require.ErrorContains(t, err, want, text)
		assert.NotContains(t, err.Error(), "hunter2")
	}
}
