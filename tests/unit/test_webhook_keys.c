#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/mem.h"
#include "sink/webhook_keys.h"

/* The example of the specification, as libraries of others test it. */
#define SECRET "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#define SIGNATURE "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
#define OTHER "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static struct webhook_config fresh(char *path)
{
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	return (struct webhook_config){ .secret_file = path, .authorization_file = (char *)"" };
}

static char *signatures(const struct webhook_keys *k)
{
	struct buf b = { .ceiling = 4096 };

	webhook_keys_sign(k, slice_of("msg_p5jXN8AQM9LWM0D4loKWxJek"), 1614265330, slice_of("{\"test\": 2432232314}"), &b);
	return buf_take(&b);
}

static void it_signs_as_the_specification_does(void **state _unused_)
{
	char path[] = "/tmp/postrider-test-XXXXXX";
	struct webhook_config config = fresh(path);
	_cleanup_(mem_freep) char *signature = NULL;
	struct webhook_keys keys;
	struct error err;

	write_file(path, SECRET "\n");
	webhook_keys_init(&keys, &config);
	assert_true(webhook_keys_look(&keys, 0, &err));
	signature = signatures(&keys);
	assert_string_equal(signature, SIGNATURE);
	webhook_keys_release(&keys);
	unlink(path);
}

static void while_there_are_several_each_signs(void **state _unused_)
{
	char path[] = "/tmp/postrider-test-XXXXXX";
	struct webhook_config config = fresh(path);
	_cleanup_(mem_freep) char *signature = NULL;
	struct webhook_keys keys;
	struct error err;

	write_file(path, OTHER "\r\n\n" SECRET);
	webhook_keys_init(&keys, &config);
	assert_true(webhook_keys_look(&keys, 0, &err));
	assert_int_equal(keys.n_keys, 2);
	signature = signatures(&keys);
	assert_non_null(strstr(signature, " " SIGNATURE));
	assert_ptr_equal(strstr(signature, "v1,"), signature);
	webhook_keys_release(&keys);
	unlink(path);
}

static void a_file_that_changes_is_read_again(void **state _unused_)
{
	char path[] = "/tmp/postrider-test-XXXXXX";
	struct webhook_config config = fresh(path);
	struct webhook_keys keys;
	struct error err;

	write_file(path, SECRET "\n");
	webhook_keys_init(&keys, &config);
	assert_true(webhook_keys_look(&keys, 0, &err));
	write_file(path, SECRET "\n" OTHER "\n");
	assert_true(webhook_keys_look(&keys, 500, &err));
	assert_int_equal(keys.n_keys, 1);
	assert_true(webhook_keys_look(&keys, 1000, &err));
	assert_int_equal(keys.n_keys, 2);
	write_file(path, "half a sec");
	assert_false(webhook_keys_look(&keys, 2000, &err));
	assert_false(webhook_keys_look(&keys, 2001, &err));
	assert_int_equal(err.kind, ERROR_CONFIG);
	assert_null(strstr(err.message, "half"));
	write_file(path, OTHER);
	assert_true(webhook_keys_look(&keys, 2002, &err));
	assert_int_equal(keys.n_keys, 1);
	unlink(path);
	assert_false(webhook_keys_look(&keys, 4000, &err));
	webhook_keys_release(&keys);
}

static void what_is_no_secret_is_named_by_its_line(void **state _unused_)
{
	static const char *const wrong[] = {
		SECRET "\nwhsec_\n",
		SECRET "\nMfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
		SECRET "\nwhsec_MfKQ9r8G\n",
		SECRET "\nwhsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS!\n",
		SECRET "\nwhsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS\n",
		SECRET "\nwhpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
		SECRET "\nwhsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n",
	};
	char path[] = "/tmp/postrider-test-XXXXXX";
	struct webhook_config config = fresh(path);

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct webhook_keys keys;
		struct error err;

		write_file(path, wrong[i]);
		webhook_keys_init(&keys, &config);
		if (webhook_keys_look(&keys, 0, &err))
			fail_msg("taken: %s", wrong[i]);
		assert_non_null(strstr(err.message, "line 2 of /tmp/"));
		assert_null(strstr(err.message, "MfKQ"));
		webhook_keys_release(&keys);
	}
	unlink(path);
}

static void who_we_are_is_one_line(void **state _unused_)
{
	char secrets[] = "/tmp/postrider-test-XXXXXX", other[] = "/tmp/postrider-test-XXXXXX";
	struct webhook_config config = fresh(secrets);
	struct webhook_keys keys;
	struct error err;

	config.authorization_file = fresh(other).secret_file;
	write_file(secrets, SECRET);
	write_file(other, "Bearer abc\n");
	webhook_keys_init(&keys, &config);
	assert_true(webhook_keys_look(&keys, 0, &err));
	assert_string_equal(keys.authorization, "Authorization: Bearer abc");
	write_file(other, "Bearer abc\r\nX-Evil: 1\n");
	assert_false(webhook_keys_look(&keys, 5000, &err));
	assert_null(strstr(err.message, "abc"));
	webhook_keys_release(&keys);
	unlink(secrets);
	unlink(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_signs_as_the_specification_does),
		cmocka_unit_test(while_there_are_several_each_signs),
		cmocka_unit_test(a_file_that_changes_is_read_again),
		cmocka_unit_test(what_is_no_secret_is_named_by_its_line),
		cmocka_unit_test(who_we_are_is_one_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
