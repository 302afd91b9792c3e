/* Comparisons of builds, and checks of files against a policy. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

/* The JSON of a buffer contains `part`. Frees the buffer. */
static bool json_has(offld_buffer *json, const char *part)
{
    size_t size = offld_buffer_size(json);
    char *text = calloc(size + 1, 1);
    bool found;

    if (text == NULL)
        exit(2);
    memcpy(text, offld_buffer_data(json), size);
    found = strstr(text, part) != NULL;
    free(text);
    offld_buffer_free(json);
    return found;
}

static void diffs(void)
{
    offld_options *options = offld_options_new();
    offld_error *error = NULL;
    offld_buffer *json;
    offld_diff *diff;
    const offld_change *change;
    bool has_registers = false;

    CHECK(offld_diff_open("old.co", "old.co", options, &diff, &error) == OFFLD_STATUS_OK);
    CHECK(!offld_diff_differs(diff) && offld_diff_change_count(diff) == 0);
    offld_diff_free(diff);

    CHECK(offld_diff_open("old.co", "new.co", NULL, &diff, &error) == OFFLD_STATUS_OK);
    CHECK(offld_diff_differs(diff) && offld_diff_change_count(diff) == 1);
    change = offld_diff_change(diff, 0);
    CHECK(offld_diff_change(diff, 1) == NULL);
    CHECK(is(offld_change_arch(change), "gfx90a") && is(offld_change_kind(change), "changed"));
    CHECK(is(offld_change_kernel(change), "kernel") && is(offld_change_mangled(change), "kernel"));
    CHECK(is(offld_change_old_name(change), "") && is(offld_change_place(change), "new.co"));
    for (size_t i = 0; i < offld_change_fact_count(change); i++) {
        if (is(offld_change_fact_name(change, i), "vgprs")) {
            has_registers = true;
            CHECK(offld_change_fact_old(change, i) < offld_change_fact_new(change, i));
        }
    }
    CHECK(has_registers);
    CHECK(offld_diff_json(diff, &json, &error) == OFFLD_STATUS_OK);
    CHECK(json_has(json, "\"change\": \"changed\""));
    offld_diff_free(diff);

    CHECK(offld_diff_open("old.co", "none.co", NULL, &diff, &error) == OFFLD_STATUS_IO && diff == NULL);
    CHECK(has(offld_error_message(error), "none.co"));
    offld_error_free(error);
    offld_options_free(options);
}

static void gates(void)
{
    const char *files[] = {"new.co"};
    const char *baseline[] = {"old.co"};
    offld_error *error = NULL;
    offld_buffer *json;
    offld_gate *gate;
    const offld_violation *violation;

    CHECK(offld_gate_open("policy.toml", files, 1, baseline, 1, NULL, &gate, &error) == OFFLD_STATUS_OK);
    CHECK(offld_gate_violation_count(gate) == 2 && offld_gate_error_count(gate) == 0);
    violation = offld_gate_violation(gate, 0);
    CHECK(is(offld_violation_rule(violation), "all files") && is(offld_violation_requirement(violation), "require"));
    CHECK(is(offld_violation_file(violation), "new.co") && is(offld_violation_kernel(violation), ""));
    CHECK(is(offld_violation_value(violation), "gfx90a") && is(offld_violation_limit(violation), "gfx942"));
    violation = offld_gate_violation(gate, 1);
    CHECK(is(offld_violation_requirement(violation), "max-growth.registers"));
    CHECK(is(offld_violation_kernel(violation), "kernel (gfx90a)"));
    CHECK(offld_gate_violation(gate, 2) == NULL && is(offld_gate_error(gate, 0), ""));
    CHECK(offld_gate_json(gate, &json, &error) == OFFLD_STATUS_OK);
    CHECK(json_has(json, "\"limit\": \"gfx942\""));
    offld_gate_free(gate);

    CHECK(offld_gate_open("old.co", files, 1, NULL, 0, NULL, &gate, &error) != OFFLD_STATUS_OK && gate == NULL);
    offld_error_free(error);
    CHECK(offld_gate_open("policy.toml", NULL, 1, NULL, 0, NULL, &gate, NULL) == OFFLD_STATUS_ARGUMENT);
}

static void nulls(void)
{
    CHECK(!offld_diff_differs(NULL) && offld_diff_change_count(NULL) == 0 && offld_diff_change(NULL, 0) == NULL);
    CHECK(is(offld_change_arch(NULL), "") && is(offld_change_kind(NULL), "") && is(offld_change_kernel(NULL), ""));
    CHECK(is(offld_change_mangled(NULL), "") && is(offld_change_old_name(NULL), "") && is(offld_change_place(NULL), ""));
    CHECK(offld_change_fact_count(NULL) == 0 && is(offld_change_fact_name(NULL, 0), ""));
    CHECK(offld_change_fact_old(NULL, 0) == OFFLD_NONE && offld_change_fact_new(NULL, 0) == OFFLD_NONE);
    CHECK(offld_gate_violation_count(NULL) == 0 && offld_gate_violation(NULL, 0) == NULL);
    CHECK(offld_gate_error_count(NULL) == 0 && is(offld_gate_error(NULL, 0), ""));
    CHECK(is(offld_violation_rule(NULL), "") && is(offld_violation_requirement(NULL), "") && is(offld_violation_file(NULL), ""));
    CHECK(is(offld_violation_kernel(NULL), "") && is(offld_violation_value(NULL), "") && is(offld_violation_limit(NULL), ""));
    offld_diff_free(NULL);
    offld_gate_free(NULL);
}

void comparisons(void)
{
    diffs();
    gates();
    nulls();
}
